"""`cce plan` as it is typed: sizes or a data set in, what every table weighs out."""

import json

import pytest

from cce.cli import main
from cce.collection import plan_tables
from cce.data import PreparedData, SyntheticConfig, prepare_synthetic
from cce.embeddings import ClusteredEmbedding
from cce.training import count_ids


def typed(capsys, *words):
    code = main(["plan", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_it_prints_the_plan_of_the_collection(capsys):
    code, out, err = typed(capsys, "60000", "150", "--dim", "8", "--cap", "6400")
    expected = plan_tables({"feature_0": 60_000, "feature_1": 150}, 8, cap=6400)
    assert (code, err) == (0, "")
    assert out.startswith(f"{expected}\n\n")
    assert "all tables" in out


def test_it_says_which_ids_have_own_rows_learned_pointers_or_hashes(capsys):
    _, out, _ = typed(capsys, "user=60000", "item=150", "--nbytes", "0.2M", "--json")
    plan = json.loads(out)
    learned = plan["tables"][0]["sizes"]["num_learned"]
    assert 0 < learned < 60_000
    assert plan["split"] == {
        "user": {"ids": {"own rows": 0, "learned": learned, "hashed": 60_000 - learned}},
        "item": {"ids": {"own rows": 150, "learned": 0, "hashed": 0}},
    }
    _, out, _ = typed(capsys, "user=60000", "item=150", "--nbytes", "0.2M")
    assert out.splitlines()[-2].split() == ["user", "0", f"{learned:,}", f"{60_000 - learned:,}"]
    assert out.splitlines()[-1].split() == ["item", "150", "0", "0"]


@pytest.mark.parametrize(
    ("method", "kind"), [("cce", "learned"), ("pq", "learned"), ("hash", "hashed"), ("robe", "hashed"), ("dhe", None)]
)
def test_the_split_follows_the_method(capsys, method, kind):
    _, out, _ = typed(capsys, "user=60000", "--cap", "9000", "--method", method, "--json")
    split = json.loads(out)["split"]
    assert {name for name, count in split.get("user", {"ids": {}})["ids"].items() if count} == (
        {kind} if kind else set()
    )


def test_counted_ids_learn_as_in_training_and_shares_of_occurrences_are_shown(capsys, tmp_path):
    sizes = SyntheticConfig(num_rows=500, vocabulary_sizes=(400, 20))
    prepare_synthetic(tmp_path / "data", sizes, progress=False)
    words = (str(tmp_path / "data"), "--cap", "640", "--count")
    code, out, _ = typed(capsys, *words, "--json")
    first, second = json.loads(out)["split"].values()
    counts = next(iter(count_ids(PreparedData.open(tmp_path / "data")).values()))
    learned = first["ids"]["learned"]
    assert (code, 0 < learned < 400) == (0, True)
    assert learned == ClusteredEmbedding.training_defaults().with_refits(3).num_learned(counts)
    assert first["occurrences"]["learned"] == pytest.approx(float(counts[:learned].sum() / counts.sum()))
    assert sum(first["occurrences"].values()) == pytest.approx(1)
    assert second["occurrences"]["own rows"] == 1
    _, out, _ = typed(capsys, *words)
    assert "own rows, %" in out


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
        (("100", "--cap", "10", "--count"), "--count must have the folder of a data set, got '100'."),
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
