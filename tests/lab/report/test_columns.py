"""Scores at equal columns, and at their best."""

from cce_lab.report.groups import group_records
from cce_lab.report.overview import columns_of, columns_table
from helpers.made_records import made_record


def run(method, columns, bce, cap=500, seed=0):
    record = made_record(method, cap, seed, bce=bce, series=f"{method}, {columns}")
    blocks = {"block_size": 16 // columns} if method == "robe" else {"num_columns": columns}
    record.config["method_options"] = blocks
    return record


def test_columns_are_told_by_number_or_by_the_length_of_blocks():
    assert columns_of({"method_options": {"num_columns": 8}}) == 8
    assert columns_of({"method_options": {"block_size": 2}, "embedding_dim": 16}) == 8
    assert columns_of({"method_options": {}}) is columns_of({}) is None


def test_methods_stand_side_by_side_at_equal_columns_and_at_their_best():
    records = [run("cce", 4, 0.46), run("cce", 8, 0.45), run("cce", 8, 0.43, seed=1), run("robe", 4, 0.47)]
    records += [run("robe", 16, 0.48), run("cce", 4, 0.41, cap=900), made_record("full", None)]
    (group,) = group_records(records)
    table = columns_table(group)
    assert [column.name for column in table.columns] == ["budget", "columns", "cce", "robe"]
    assert [[str(cell) for cell in row] for row in table.rows] == [
        ["cap 500", "4", "0.4600", "0.4700"],
        ["cap 500", "8", "0.4400", "–"],
        ["cap 500", "16", "–", "0.4800"],
        ["cap 500", "best", "0.4400 (8)", "0.4700 (4)"],
        ["cap 900", "4", "0.4100", "–"],
        ["cap 900", "best", "0.4100 (4)", "–"],
    ]


def test_where_columns_are_no_axis_there_is_no_table():
    (group,) = group_records([run("cce", 4, 0.46), run("robe", 4, 0.47), made_record("hash", 500)])
    assert columns_table(group).rows == []
