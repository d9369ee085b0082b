"""Streams: a part is scored before it is trained on, once; a kill changes nothing, and bad parts cost nothing."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import cce
from cce.cli import main
from cce.data import PreparedData
from cce.run_folder import RunFolder
from cce.training import TrainConfig, Trainer, finalize_run
from cce.training.checkpoint import list_checkpoints, read_checkpoint
from cce.training.scoring import score

COLUMNS = {"label": "click", "categorical": ["user", "item"], "dense": ["age"], "progress": False}
OPTIONS = {
    "model": "mlp",
    "model_options": {"hidden": [8]},
    "embedding_dim": 4,
    "method": "cce",
    "batch_size": 32,
    "validations_per_epoch": 3,
    "threads": 1,
    "device": "cpu",
}
DAYS, ROWS = 4, 200


def write_day(path, day, num_rows=ROWS):
    """Users come and go: those of a day are the 30 from 10 · day on; whether they click is in their name."""
    rng = np.random.default_rng(day)
    users, items = 10 * day + rng.integers(30, size=num_rows), rng.integers(5, size=num_rows)
    clicks = rng.random(num_rows) < np.where(users % 3 == 0, 0.9, 0.1)
    seconds = 1000 * day + np.sort(rng.integers(1000, size=num_rows))
    rows = zip(clicks.astype(int), users, items, rng.random(num_rows), seconds, strict=True)
    lines = [f"{click},u{user},{item or ''},{age:.3f},{at}" for click, user, item, age, at in rows]
    path.write_text("\n".join(["click,user,item,age,seconds", *lines]) + "\n")
    return path


@pytest.fixture
def days(tmp_path):
    """Raw files, and the first one prepared with open ids."""
    files = [write_day(tmp_path / f"day{day}.csv", day) for day in range(DAYS)]
    cce.prepare(files[0], tmp_path / "first", split="none", timestamp="seconds", open=True, **COLUMNS)
    return [tmp_path / "first", *files[1:]]


def config(parts, **changes):
    return TrainConfig(data=str(parts[0]), stream=[str(part) for part in parts], **(OPTIONS | changes))


def scored(out):
    return [line for line in RunFolder(out).scan_log()[0] if line["kind"] == "part"]


def last_bits(out):
    checkpoint = read_checkpoint(list_checkpoints(out / "checkpoints")[-1])
    state = checkpoint.state["optimizers"][0]["state"]
    tensors = checkpoint.model | {f"{i}.{name}": value for i, own in state.items() for name, value in own.items()}
    kept = ("step", "loader", "curve")
    found = {name: torch.as_tensor(value).reshape(-1).view(torch.uint8).tolist() for name, value in tensors.items()}
    return found, [checkpoint.state[name] for name in kept], scored(out)


@pytest.mark.slow
def test_a_part_is_scored_by_the_model_that_was_trained_on_those_before(days, tmp_path):
    record = Trainer(config(days), tmp_path / "all").run()
    lines = scored(tmp_path / "all")
    assert [(line["part"], line["rows"]) for line in lines] == [(part, ROWS) for part in range(1, DAYS + 1)]
    assert lines[-1]["bce"] < lines[0]["bce"]
    assert lines[-1]["nbytes"] > lines[0]["nbytes"]
    assert record.scores["bce"] == pytest.approx(sum(line["bce"] for line in lines[1:]) / (DAYS - 1))
    assert [scores["epoch"] for scores in record.curve] == [1, 2, 3, 4]
    before = Trainer(config(days[:-1]), tmp_path / "three")
    before.run()
    cce.prepare(days[-1], tmp_path / "last", split="none", timestamp="seconds", open=True, **COLUMNS)
    last = PreparedData.open(tmp_path / "last").loader("train", batch_size=50, shuffle=False)
    expected = score(before.model, last, ["bce", "auc", "calibration"], device=torch.device("cpu"))
    assert {name: lines[-1][name] for name in expected} == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("last_step", [5, 7, 10, 24])
def test_a_stream_that_was_stopped_anywhere_and_resumed_has_the_same_bits(days, tmp_path, last_step):
    Trainer(config(days), tmp_path / "whole").run()
    Trainer(config(days, max_steps=last_step), tmp_path / "cut").run()
    Trainer.resume(tmp_path / "cut", max_steps=None).run()
    assert last_bits(tmp_path / "cut") == last_bits(tmp_path / "whole")


@pytest.mark.slow
def test_tomorrow_goes_on_as_if_all_parts_had_been_given_at_once(days, tmp_path, capsys):
    Trainer(config(days), tmp_path / "whole").run()
    options = [f"{name}={value}" for name, value in OPTIONS.items() if name != "model_options"]
    start = ["train", "--out", str(tmp_path / "daily"), "--set", *options, "model_options={hidden=[8]}", "--stream"]
    main([*start, *map(str, days[:2])])
    main(["train", "--continue", str(tmp_path / "daily"), *map(str, days[2:])])
    assert last_bits(tmp_path / "daily") == last_bits(tmp_path / "whole")
    assert "progressive, means of parts 2 to 4: BCE" in capsys.readouterr().out


@pytest.mark.slow
def test_a_killed_stream_goes_on_in_a_folder_that_has_grown(days, tmp_path):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for number, day in enumerate(days[:3]):
        day.rename(inbox / f"{number}{day.suffix}")
    run = {**OPTIONS, "data": str(inbox / "0"), "stream": [str(inbox)]}
    killed = (
        "import json, os, sys\nfrom cce.training import TrainConfig, Trainer\n"
        "trainer = Trainer(TrainConfig(**json.loads(sys.argv[1])), sys.argv[2])\n"
        "step = trainer.training.train_step\n"
        "def train_step(*rows):\n"
        "    trainer.session.step == 11 and os.kill(os.getpid(), 9)\n"
        "    step(*rows)\n"
        "trainer.training.train_step = train_step\n"
        "trainer.run()\n"
    )
    done = subprocess.run([sys.executable, "-c", killed, json.dumps(run), str(tmp_path / "killed")], check=False)
    assert done.returncode == -9
    days[3].rename(inbox / "3.csv")
    (inbox / "_SUCCESS").touch()
    Trainer.resume(tmp_path / "killed").run()
    Trainer(TrainConfig(**run), tmp_path / "whole").run()
    assert last_bits(tmp_path / "killed") == last_bits(tmp_path / "whole")
    assert [Path(line["path"]).name for line in scored(tmp_path / "killed")] == ["0", "1.csv", "2.csv", "3.csv"]


@pytest.mark.slow
def test_bad_parts_are_named_in_a_line_and_nothing_is_lost(days, tmp_path):
    out = tmp_path / "run"
    Trainer(config(days[:2]), out).run()
    before = last_bits(out)[0]

    def go_on(*parts, **changes):
        return Trainer.resume(out, stream=[str(part) for part in (*days[:2], *parts)], **changes).run()

    with pytest.raises(ValueError, match=r"stream must name a part once, got '.*day1.csv' twice"):
        go_on(days[1])
    whole = days[2].read_text()
    days[2].write_text(whole[:-3])
    with pytest.raises(ValueError, match=r"day2.csv must end with a line break: .* may have been cut\. No row of this"):
        go_on(days[2])
    days[2].write_text(whole + "1,u3\n")
    with pytest.raises(ValueError, match=r"day2.csv, row 201: expected 5 columns, got 2\. No row of this part was"):
        go_on(days[2])
    assert last_bits(out)[0] == before
    days[2].write_text(whole)
    (tmp_path / "again.csv").write_text(days[1].read_text())
    early = write_day(tmp_path / "early.csv", day=0, num_rows=50)
    go_on(tmp_path / "again.csv", days[2], early)
    assert [line["rows"] for line in scored(out)] == [ROWS, ROWS, ROWS, 50]
    notes = [line["note"] for line in RunFolder(out).scan_log()[0] if line["kind"] == "note"]
    assert notes == [
        f"{tmp_path}/again.csv has the rows of {days[1]}, which were trained: it is skipped.",
        f"the clock goes backwards: {early} begins at {scored_times(early)[0]:g}, and rows before it end at "
        f"{scored_times(days[2])[1]:g}.",
    ]
    Trainer.resume(out, max_steps=100).run()  # nothing is left
    assert len(scored(out)) == 4
    with pytest.raises(ValueError, match="must have an end to be finalized, and a stream goes on"):
        finalize_run(out)


@pytest.mark.slow
def test_a_stream_keeps_to_its_bytes_and_baselines_hash_or_need_a_bound(days, tmp_path):
    for method in ("cce", "hash"):
        Trainer(config(days, method=method, nbytes=800), tmp_path / method).run()
        assert all(line["nbytes"] <= 800 for line in scored(tmp_path / method)), method
    with pytest.raises(ValueError, match="num_embeddings must be a number for method 'full', which is made for known"):
        Trainer(config(days, method="full"), tmp_path / "full")
    cce.prepare(tmp_path / "day0.csv", tmp_path / "closed", split="none", **COLUMNS)
    with pytest.raises(ValueError, match="a budget of method 'cce' in a stream bounds rows of open ids"):
        Trainer(config([tmp_path / "closed"], nbytes=800), tmp_path / "wrong")


def scored_times(path):
    times = [float(line.split(",")[-1]) for line in path.read_text().splitlines()[1:]]
    return min(times), max(times)


@pytest.mark.slow
def test_with_vocabularies_of_day_one_later_values_are_unseen(days, tmp_path):
    cce.prepare(tmp_path / "day0.csv", tmp_path / "closed", split="none", **COLUMNS)
    parts = [tmp_path / "closed", *days[1:]]
    run = Trainer(config(parts, method="full"), tmp_path / "run")
    unseen = torch.tensor([0])
    before = run.model.tables.tables["user"].to_dense(unseen)
    run.run()
    assert not torch.equal(run.model.tables.tables["user"].to_dense(unseen), before)
    header, *lines = (tmp_path / "day0.csv").read_text().splitlines(keepends=True)
    (tmp_path / "turned.csv").write_text(header + "".join(reversed(lines)))
    cce.prepare(tmp_path / "turned.csv", tmp_path / "other", split="none", **COLUMNS)
    with pytest.raises(ValueError, match="other has its own vocabularies: give its raw file"):
        Trainer(config([tmp_path / "closed", tmp_path / "other"]), tmp_path / "second").run()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 2}, "epochs does not go with stream, which never ends, got 2"),
        ({"bits": 8.0}, r"bits does not go with stream, which never ends, got 8\.0"),
        ({"stream": ["a", "b", "a"]}, "stream must name a part once, got 'a' twice"),
    ],
)
def test_options_of_epochs_are_rejected(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**{"data": "a", "stream": ["a"]} | changes)
