"""What verbs do, as functions: the same results, objects back, and errors as exceptions."""

import pytest

import cce
from cce.cli import main
from helpers.raw_files import write_csv

ROWS = [(row % 2, f"u{row % 7}", f"i{row % 5}", "a|b" if row % 3 else "", row) for row in range(300)]
HEADER = ("y", "user", "item", "tags", "age")
SMALL = {"embedding_dim": 4, "batch_size": 32, "model_options": {"bottom": [4], "top": [4]}, "threads": 1}


@pytest.fixture
def data(tmp_path):
    write_csv(tmp_path / "log.csv", HEADER, ROWS)
    columns = {"label": "y", "categorical": ["user", "item"], "multi_hot": ["tags"], "dense": ["age:standard"]}
    return cce.prepare(tmp_path / "log.csv", tmp_path / "data", **columns, split="order", test=0.2, progress=False)


def test_prepare_does_what_the_shell_does(data, tmp_path, capsys):
    words = ["--label", "y", "--categorical", "user", "item", "--multi-hot", "tags", "--dense", "age:standard"]
    command = ["prepare", "table", str(tmp_path / "log.csv"), str(tmp_path / "typed"), *words, "--split", "order"]
    assert main([*command, "--test", "0.2"]) == 0
    assert "rows: train 210" in capsys.readouterr().out
    assert data.manifest["files"] == cce.data.PreparedData.open(tmp_path / "typed").manifest["files"]
    assert data.num_rows("test") == 60


def test_prepare_takes_files_of_splits_and_other_kinds(tmp_path, capsys):
    (tmp_path / "raw").mkdir()
    write_csv(tmp_path / "raw" / "train.csv", HEADER, ROWS[:200])
    write_csv(tmp_path / "raw" / "test.csv", HEADER, ROWS[200:])
    typed = {"label": "y", "categorical": ["user"], "split": "files"}
    data = cce.prepare(tmp_path / "raw", tmp_path / "split", progress=False, **typed)
    assert {split: data.num_rows(split) for split in data.splits} == {"train": 200, "validation": 0, "test": 100}
    clicks = cce.prepare(
        None, tmp_path / "clicks", kind="synthetic", num_rows=200, vocabulary_sizes=[9, 5], progress=False
    )
    assert clicks.schema.vocabulary_sizes == {"c0": 10, "c1": 6}
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": 3}, "'colour' is no option of 'table': there are label, categorical"),
        ({"labels": "y"}, "'labels' is no option of 'table': did you mean 'label'"),
        ({"kind": "synthetic"}, "'raw' is no option of 'synthetic': there are num_rows"),
    ],
)
def test_what_is_wrong_is_raised(tmp_path, options, message):
    write_csv(tmp_path / "log.csv", HEADER, ROWS)
    with pytest.raises(ValueError, match=message):
        cce.prepare(tmp_path / "log.csv", tmp_path / "out", **({"label": "y", "categorical": ["user"]} | options))


@pytest.mark.slow
def test_train_returns_the_record_of_its_run(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = cce.train(data, method="hash", cap=40, progress=False, **SMALL)
    assert record.method == "hash"
    assert (tmp_path / "runs" / "data-hash" / "record.jsonl").exists()
    again = cce.train(tmp_path / "data", out="again", method="hash", cap=40, progress=False, **SMALL)
    assert again.scores == record.scores
    row = record.to_row()
    assert (row["method"], row["cap"], row["seed"], row["test_bce"]) == ("hash", 40, 0, record.scores["bce"])
    assert "model_options" not in row
    with pytest.raises(ValueError, match="not known, 'epoch': did you mean 'epochs'"):
        cce.train(data, method="full", epoch=2)


@pytest.mark.slow
def test_evaluate_and_predict_take_runs_and_rows_of_any_kind(data, tmp_path):
    record = cce.train(data, out=tmp_path / "run", method="hash", cap=40, progress=False, **SMALL)
    found = cce.evaluate(tmp_path / "run", tmp_path / "data")
    assert (found.name, found.num_rows, found.scores) == ("test", 60, record.scores)
    assert set(cce.evaluate(tmp_path / "run", tmp_path / "log.csv", metrics=["auc"]).scores) == {"auc"}
    run = cce.load_run(tmp_path / "run")
    predicted = cce.predict(run, tmp_path / "log.csv")
    assert predicted.shape == (300,)
    assert predicted[-60:].tolist() == pytest.approx(cce.predict(tmp_path / "run", tmp_path / "data").tolist())


def test_functions_stay_functions_when_packages_are_imported():
    import cce.cli.prepare
    import cce.cli.train

    assert all(callable(getattr(cce, name)) for name in ("prepare", "train", "evaluate", "predict"))
