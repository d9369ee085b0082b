"""Environments side by side."""

from cce.report.environment_table import environment_table
from helpers.made_records import ENVIRONMENT, made_record


def test_a_column_for_each_environment():
    other = ENVIRONMENT | {"torch": "2.9.0", "gpu": "a card"}
    records = [made_record("cce", 500, seed) for seed in range(2)] + [made_record("cce", 500, 2, environment=other)]
    table = environment_table(records)
    rows = {row[0].value: [cell.value for cell in row[1:]] for row in table.rows}
    assert rows["runs"] == [2, 1]
    assert rows["torch"] == ["2.13.0", "2.9.0"]
    assert rows["gpu"] == ["", "a card"]
    assert [column.name for column in table.columns] == ["", "environment 1", "environment 2"]


def test_old_records_tell_nothing():
    table = environment_table([made_record("cce", 500, environment={})])
    assert [[cell.value for cell in row] for row in table.rows] == [["runs", 1]]
