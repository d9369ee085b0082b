"""`cce plan` as it is typed: sizes or a data set in, what every table weighs out."""

import json

import pytest

from cce.cli import main
from cce.collection import plan_tables
from cce.data import SyntheticConfig, prepare_synthetic


def typed(capsys, *words):
    code = main(["plan", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_it_prints_the_plan_of_the_collection(capsys):
    code, out, err = typed(capsys, "60000", "150", "--dim", "8", "--cap", "6400")
    expected = plan_tables({"feature_0": 60_000, "feature_1": 150}, 8, cap=6400)
    assert (code, err) == (0, "")
    assert out == f"{expected}\n"
    assert "all tables" in out


def test_features_may_have_names(capsys):
    _, out, _ = typed(capsys, "user=60000", "item=150", "--compression", "20", "--json")
    plan = json.loads(out)
    assert [table["name"] for table in plan["tables"]] == ["user", "item"]
    assert plan["all_tables"]["compression"] >= 20
    assert plan["largest_table"]["name"] == "user"


@pytest.mark.parametrize(
    ("word", "limit"), [("300000", 300_000), ("300kB", 300_000), ("0.3MB", 300_000), ("0.3M", 300_000)]
)
def test_bytes_may_have_a_unit(capsys, word, limit):
    _, out, _ = typed(capsys, "user=20000", "item=3000", "--nbytes", word, "--json")
    total = json.loads(out)["all_tables"]["nbytes"]
    assert 0.95 * limit < total <= limit


def test_a_rule_and_its_power_are_followed(capsys):
    sizes = ("a=50000", "b=5000")
    _, out, _ = typed(capsys, *sizes, "--num-params", "20000", "--rule", "power", "--power", "1", "--json")
    first, second = (table["num_params"] for table in json.loads(out)["tables"])
    assert first / second == pytest.approx(10, rel=0.05)


def test_a_prepared_data_set_brings_its_own_sizes(capsys, tmp_path):
    prepare_synthetic(tmp_path / "data", SyntheticConfig(num_rows=200, vocabulary_sizes=(50, 20)), progress=False)
    code, out, _ = typed(capsys, str(tmp_path / "data"), "--json")
    assert code == 0
    assert len(json.loads(out)["tables"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("many",), "features must be numbers, NAME=NUMBER or the folder of a data set, got 'many'."),
        (("a=5", "a=6"), "features must have distinct names, got 'a' twice."),
        (("100", "--method", "magic"), "method must be one of"),
        (("1000", "--num-params", "1"), "num_params must be at least 32 for method 'cce' of these sizes, got 1."),
    ],
)
def test_what_cannot_be_planned_is_rejected_in_one_line(capsys, words, said):
    code, out, err = typed(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_two_budgets_are_rejected(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["plan", "100", "--cap", "10", "--num-params", "10"])
    assert stop.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_a_rule_that_is_none_is_rejected(capsys):
    with pytest.raises(SystemExit):
        main(["plan", "100", "--rule", "none"])
    assert "argument --rule: invalid choice: 'none'" in capsys.readouterr().err


def test_bytes_without_a_number_are_rejected(capsys):
    with pytest.raises(SystemExit):
        main(["plan", "100", "--nbytes", "lots"])
    assert "bytes must be a number with a unit such as 50MB, got 'lots'." in capsys.readouterr().err
