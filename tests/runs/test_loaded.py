"""A run, loaded and used on raw rows."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import cce
from cce.data import PreparedData
from helpers.raw_runs import HEADER, NUM_TEST, held_out_rows, train_on_raw, write_rows
from helpers.runs import tiny_config, tiny_data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(trained):
    return cce.load_run(trained)


@pytest.fixture(scope="module")
def expected(trained, run):
    """The probabilities of the prepared test rows."""
    with torch.no_grad():
        batches = PreparedData.open(trained.parent / "data").loader("test", batch_size=16_384, shuffle=False)
        return torch.cat([torch.sigmoid(run.model(batch)) for batch in batches]).numpy()


def test_a_run_is_loaded_at_its_best_and_leaves_random_numbers_alone(trained):
    state = torch.get_rng_state()
    run = cce.load_run(str(trained))
    assert torch.equal(torch.get_rng_state(), state)
    assert not run.model.training
    assert run.options["cap"] == 320
    assert [feature.name for feature in run.schema.features] == ["user", "item", "tags"]
    assert run.path == trained / "checkpoints" / f"step-{run.step:010d}"
    record = json.loads((trained / "record.jsonl").read_text())
    assert run.scores == record["scores"]
    assert cce.load_run(run.path).step == run.step  # a checkpoint will do as well
    assert cce.load_run(run.path).predict(held_out_rows()[:3]).shape == (3,)


def test_raw_rows_are_predicted_as_the_prepared_ones_to_the_bit(run, expected, tmp_path):
    rows = [{name: value for name, value in row.items() if name not in ("click", "weight")} for row in held_out_rows()]
    assert len(expected) == NUM_TEST
    assert 0 in run.vocabularies["user"].find([row["user"] for row in rows if row["user"]])  # some are unseen
    assert np.array_equal(run.predict(rows), expected)
    names = ("tags", "age", "item", "user")
    for ending in ("csv", "tsv"):
        assert np.array_equal(run.predict(write_rows(tmp_path / f"a.{ending}", rows, names)), expected)
    lines = [{**row, "age": int(row["age"]) if row["age"] else None, "tags": row["tags"].split("|")} for row in rows]
    assert np.array_equal(run.predict(lines), expected)
    assert np.allclose(run.predict(rows, batch_size=7), expected, atol=1e-6)
    assert run.predict([]).shape == (0,)


def test_frames_of_any_library_are_taken(run, expected, tmp_path):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    frame = pandas.DataFrame(held_out_rows())
    frame["age"] = pandas.to_numeric(frame["age"])  # NaN where it is missing
    frame["item"] = frame["item"].astype(int)
    frame["user"] = frame["user"].replace("", None).astype("category")
    assert np.array_equal(run.predict(frame), expected)
    table = pyarrow.table(frame)
    assert np.array_equal(run.predict(table), expected)
    assert np.array_equal(run.predict(polars.from_arrow(table)), expected)
    assert np.array_equal(
        run.predict(polars.from_arrow(table).with_columns(polars.col("tags").str.split("|"))), expected
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    assert np.array_equal(run.predict(tmp_path / "a.parquet"), expected)


def test_raw_rows_with_labels_are_scored_as_the_prepared_ones(trained, run, tmp_path):
    prepared = run.evaluate(trained.parent / "data")
    raw = run.evaluate(write_rows(tmp_path / "a.csv", held_out_rows()))
    assert (prepared.scores, prepared.name, prepared.num_rows) == (run.scores, "test", NUM_TEST)
    assert (raw.scores, raw.num_rows) == (run.scores, NUM_TEST)
    assert run.evaluate(held_out_rows(), metrics=["auc", "ece"]).scores["auc"] == run.scores["auc"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"user": "u1", "tags": "a", "age": 1}], r"^rows must have a column 'item'; it has user, tags, age\.$"),
        ([{"user": "u1", "item": 1, "tags": "a", "age": "old"}], r"^column 'age' must hold numbers, got string: "),
        (
            [{"user": [1], "item": 1, "tags": "a", "age": 1}],
            r"^column 'user' must hold strings or integers, got list<item: int64>",
        ),
        ([{"user": 1, "item": 1, "tags": 5, "age": 1}], r"^multi-hot column 'tags' must hold lists or text, got int64"),
        (
            [{"user": 1}, {"user": "x"}, {"item": 1, "tags": "", "age": 1}],
            r"^column 'user' must hold values of one type",
        ),
        ([1], r"^rows must be dictionaries, got int at index 0\.$"),
        (5, r"^rows must be a path, a list of dictionaries or a frame with __arrow_c_stream__ .*, got int\.$"),
        ("nowhere.csv", r"^data must be the folder of a data set or a file of raw rows, got 'nowhere\.csv'\.$"),
    ],
)
def test_rows_that_do_not_fit_are_rejected_in_one_line(run, rows, message):
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message) as caught:
        run.predict(rows)
    assert "\n" not in str(caught.value)


def test_files_that_do_not_fit_are_rejected_with_their_row(run, tmp_path):
    rows = held_out_rows()[:4]
    path = write_rows(tmp_path / "a.csv", [*rows, {**rows[0], "age": "old"}])
    with pytest.raises(ValueError, match=r"a\.csv, row 5: age must be a number, got 'old'\.$"):
        run.predict(path)
    with pytest.raises(ValueError, match=r"a\.csv: it must have a column 'tags'; it has user, item, age\.$"):
        run.predict(write_rows(tmp_path / "a.csv", rows, ("user", "item", "age")))
    (tmp_path / "a.parquet").write_text("no Parquet")
    with pytest.raises(ValueError, match="must be a whole Parquet file, and it is damaged"):
        run.predict(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"^split goes with the folder of a data set, got 'test' with raw rows\.$"):
        run.evaluate(rows, split="test")


def test_a_run_finds_its_vocabularies_in_its_data_set_wherever_that_is_now(trained, tmp_path):
    shutil.copytree(trained.parent / "data", tmp_path / "data")
    run = cce.load_run(trained, data=tmp_path / "elsewhere")
    message = (
        r"has its vocabularies in the data set '.*elsewhere', got none there: give its folder as data \(--data\), or"
    )
    with pytest.raises(FileNotFoundError, match=message):
        run.predict(held_out_rows())
    wanted = cce.load_run(trained).predict(held_out_rows())
    assert np.array_equal(cce.load_run(trained, data=tmp_path / "data").predict(held_out_rows()), wanted)
    manifest = tmp_path / "data" / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    with pytest.raises(ValueError, match=r"^data must be the data set that .* was trained on, but '.*' is another"):
        cce.load_run(trained, data=tmp_path / "data").predict(held_out_rows())


def files_of(folder):
    """What there is in a folder, with the time of its last change."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


PREDICTING = """
import sys, cce
run = cce.load_run(sys.argv[1])
rows = [{"user": "u1", "item": 1003, "tags": "a|d", "age": 7}]
assert 0 < run.predict(rows)[0] < 1
assert run.recommend({"user": "u1"}, 3, item="item")
print(*sys.modules)
"""


def test_a_prediction_loads_nothing_of_training_and_writes_nothing(trained):
    before = files_of(trained.parent)
    command = [sys.executable, "-c", PREDICTING, str(trained)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    loaded = {name for name in result.stdout.split() if name.startswith("cce.")}
    assert {"cce.models.dlrm", "cce.runs.loaded", "cce.training.checkpoint"} <= loaded
    packages = {name.split(".")[1] for name in loaded}
    assert not packages & {"optim", "reclustering", "compression", "diagnostics", "serving", "cli"}
    training = {name for name in loaded if name.startswith("cce.training.")}
    assert training == {f"cce.training.{name}" for name in ("checkpoint", "model", "scoring")}
    assert files_of(trained.parent) == before


def test_a_synthetic_data_set_has_no_vocabulary(tmp_path):
    cce.training.Trainer(tiny_config(tiny_data(tmp_path / "data"), max_steps=2, epochs=1), tmp_path / "run").run()
    run = cce.load_run(tmp_path / "run")
    with pytest.raises(ValueError, match=r"data must have been made from raw rows, got a synthetic data set\.$"):
        run.predict([])


def test_weights_and_integers_of_parquet_are_read_as_in_training(tmp_path):
    run = cce.load_run(train_on_raw(tmp_path, "--weight", "weight"))
    assert run.evaluate(held_out_rows()).scores == run.scores
    with pytest.raises(ValueError, match=r"^rows must have a column 'weight'; it has"):
        run.evaluate([{name: row[name] for name in HEADER if name != "weight"} for row in held_out_rows()])
    assert run.predict([{name: row[name] for name in HEADER if name != "weight"} for row in held_out_rows()]).shape == (
        60,
    )
