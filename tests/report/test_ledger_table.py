"""The ledger: every table, the largest first, and their sum."""

from cce.report.groups import group_records
from cce.report.ledger_table import ledger_table
from helpers.made_records import made_record


def test_tables_and_their_sum():
    record = made_record("cce", 8000)
    (group,) = group_records([record])
    rows = ledger_table(group).as_dicts()
    assert [row["table"] for row in rows] == [
        "tables.C3",
        "tables.C12",
        "tables.C7",
        "tables.C1",
        "tables.C9",
        "all tables",
    ]
    assert [row["method"] for row in rows] == ["cce", "cce", "cce", "full", "full", ""]
    first, total = rows[0], rows[-1]
    assert (first["ids"], first["params"], first["codebook"], first["pointers"]) == (200_000, 8000, 32_000, 800_000)
    assert (first["optimizer"], first["fewer params"]) == (32_000, 400)
    assert first["fewer bytes"] == 200_000 * 16 * 4 / 832_000
    assert total["params"] == record.num_params
    assert total["codebook"] + total["pointers"] == record.nbytes


def test_a_record_without_a_ledger_has_no_lines():
    (group,) = group_records([made_record("cce", 8000, tables=[])])
    assert ledger_table(group).rows == []
