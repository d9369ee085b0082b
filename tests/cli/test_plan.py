"""`cce plan` as it is typed: sizes or a data set in, what every table weighs out."""

import json

import pytest

from cce.cli import main
from cce.data import PreparedData, SyntheticConfig, prepare_synthetic
from cce.runs import load_run
from cce.training import TrainConfig, count_ids, plan_run


def typed(capsys, *words):
    code = main(["plan", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    """A data set of two features, one of many rare ids."""
    folder = tmp_path_factory.mktemp("plan") / "data"
    prepare_synthetic(folder, SyntheticConfig(num_rows=500, vocabulary_sizes=(400, 20)), progress=False)
    return folder


def test_it_prints_the_plan_of_a_run(capsys):
    code, out, err = typed(capsys, "60000", "150", "--embedding-dim", "8", "--cap", "6400")
    config = TrainConfig(data="", embedding_dim=8, cap=6400)
    expected = plan_run(config, {"feature_0": 60_000, "feature_1": 150}).tables
    assert (code, err) == (0, "")
    assert out.startswith(f"{expected}\n\n")
    assert "all tables" in out
    assert "Ids are not counted" in out


NAMES = ("method", "num_params", "codebook_nbytes", "pointer_nbytes", "full_nbytes")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "is_exact"),
    [
        ((), False),
        (("--bits", "8"), False),
        (("--bits", "1", "--set", "optimizer=sgd"), False),
        (("--bits", "10", "--embedding-dim", "64"), False),
        (("--bits", "8", "--set", "min_count=2"), False),
        (("--nbytes", "5k"), False),
        (("--nbytes", "2500"), False),
        (("--nbytes", "9k", "--method", "hash", "--set", "optimizer=sgd"), True),
        (("--cap", "640", "--method", "cce-paper", "--method-options", "settings={max_iter=3}"), True),
        (("--cap", "640", "--set", "min_count=2"), True),
    ],
)
def test_the_plan_is_what_a_training_run_makes_and_holds(capsys, tmp_path, clicks, words, is_exact):
    words = (*words, "--set", "batch_size=64", "refits=0")
    code, out, err = typed(capsys, str(clicks), *words, "--json")
    assert (code, err) == (0, "")
    planned = json.loads(out)
    assert main(["train", str(clicks), *words, "--set", "threads=1", "--out", str(tmp_path / "run"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert any(table["method"] != "full" for table in record["tables"])
    held = sum(
        (table["codes_nbytes"] or table["nbytes"]) + table["gradient_nbytes"] + table["optimizer_nbytes"]
        for table in record["tables"]
    )
    assert planned["training_nbytes"] == pytest.approx(held, rel=0.15)
    least, most = planned["served_nbytes"]
    assert 0.85 * least <= record["nbytes"] <= 1.15 * most
    assert least == most or not words[0].startswith(("--nbytes", "--bits", "--cap"))
    if is_exact:
        real = [[table[name] for name in NAMES] for table in record["tables"]]
        assert [[table[name] for name in NAMES] for table in planned["tables"]] == real


@pytest.mark.slow
def test_ids_without_a_row_read_zeros_in_the_run_that_was_planned(capsys, tmp_path, clicks):
    words = (str(clicks), "--cap", "640", "--set", "threads=1", "min_count=3", "--out", str(tmp_path / "run"), "--json")
    assert main(["train", *words]) == 0
    capsys.readouterr()
    vectors = next(iter(load_run(tmp_path / "run").model.tables.tables.values())).to_dense()
    counts = count_ids(PreparedData.open(clicks), "c0")
    assert int(vectors.any(dim=1).sum()) == int((counts >= 3).sum()) < len(vectors)


def test_settings_of_clusterings_are_printed_as_they_are_given(capsys, clicks):
    words = (str(clicks), "--cap", "640", "--method", "cce-paper", "--method-options", "settings={max_iter=3}")
    run = json.loads(typed(capsys, *words, "--json")[1])["run"]
    assert (run["options"]["settings"], run["refits"]) == ({"max_iter": 3}, 0)


@pytest.mark.parametrize(("words", "refits"), [((), 4), (("--set", "refits=0"), 0)])
def test_without_a_budget_it_shows_a_byte_an_id_and_how_large_tables_may_be(capsys, words, refits):
    plan = json.loads(typed(capsys, "user=60000", *words, "--json")[1])
    table, (least, most) = plan["tables"][0], plan["served_nbytes"]
    assert (table["method"], table["sizes"]) == ("cce", {"num_columns": 1, "num_rows": 256})
    own_map = 12 * 60_000 / 64
    assert table["nbytes"] == pytest.approx(60_000 + 256 * 16 * 4 + own_map, abs=20)
    assert least == pytest.approx(60_000 / 8 + 2 * 16 * 4 + own_map, abs=20)  # a bit an id
    assert most == pytest.approx(60_000 * 16 + 256 * 16 * 4 + own_map, abs=20)  # a byte for each value
    assert plan["run"]["refits"] == refits
    assert "served: 18.9 kB to 987.6 kB, and 87.6 kB at one byte per id, as above" in typed(capsys, "user=60000")[1]


@pytest.mark.parametrize(("bits", "expected"), [("10", (1, 1024)), ("16", (2, 256))])
def test_bits_say_how_large_tables_are_served(capsys, bits, expected):
    plan = json.loads(typed(capsys, "user=60000", "--bits", bits, "--json")[1])
    sizes = plan["tables"][0]["sizes"]
    assert (sizes["num_columns"], sizes["num_rows"]) == expected
    assert plan["served_nbytes"] == [plan["tables"][0]["nbytes"]] * 2


def test_features_may_have_names(capsys):
    _, out, _ = typed(capsys, "user=60000", "item=150", "--set", "compression=20", "--json")
    plan = json.loads(out)
    assert [table["name"] for table in plan["tables"]] == ["user", "item"]
    assert plan["all_tables"]["compression"] >= 20
    assert plan["largest_table"]["name"] == "user"


@pytest.mark.parametrize(("word", "limit"), [("120000", 120_000), ("120kB", 120_000), ("0.12M", 120_000)])
def test_bytes_may_have_a_unit(capsys, word, limit):
    _, out, _ = typed(capsys, "user=20000", "item=3000", "--nbytes", word, "--json")
    total = json.loads(out)["all_tables"]["nbytes"]
    assert 0.85 * limit < total <= limit


def test_a_prepared_data_set_brings_its_own_sizes(capsys, tmp_path):
    prepare_synthetic(tmp_path / "data", SyntheticConfig(num_rows=200, vocabulary_sizes=(50, 20)), progress=False)
    code, out, _ = typed(capsys, str(tmp_path / "data"), "--json")
    assert code == 0
    assert len(json.loads(out)["tables"]) == 2
