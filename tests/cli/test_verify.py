"""`cce verify`: what it prints, and its exit code."""

import json

import pytest

from cce.cli import main
from helpers.raw_files import table_with_everything


@pytest.fixture
def folder(tmp_path):
    return table_with_everything(tmp_path)


def test_what_is_right_is_said_in_one_line(folder, capsys):
    assert main(["verify", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"{folder}: data is right (11 files, ")
    assert out.endswith(" bytes, 40 rows)\n")
    assert main(["verify", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["path"], found["problems"]) == ("data", str(folder), [])
    assert found["checked"]["rows"] == 40


def test_the_first_problem_is_an_error_and_json_has_them_all(folder, capsys):
    for name in ("test.rows", "train.rows"):
        (folder / name).unlink()
    assert main(["verify", str(folder)]) == 2
    out, err = capsys.readouterr()
    message = f"cce verify: {folder / 'test.rows'} must be there, and it is missing. (1 more: --json lists them)\n"
    assert (out, err) == ("", message)
    assert main(["verify", str(folder), "--json"]) == 2
    out, err = capsys.readouterr()
    assert err == message
    assert len(json.loads(out)["problems"]) == 2
