"""Streams: a part is scored before it is trained on, once; a kill changes nothing, and bad parts cost nothing."""

import contextlib
import csv
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
from cce.serving import numpy_reader
from cce.serving.numpy_deltas import apply_delta as bundle_delta
from cce.serving.numpy_deltas import checksum
from cce.training import TrainConfig, Trainer, curve_of_run, discard_rows, finalize_run, inspect_checkpoint
from cce.training.checkpoint import list_checkpoints, read_checkpoint
from cce.training.scoring import score
from helpers.two_ranks import two_processes

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
@pytest.mark.parametrize("last_step", [7, 24])
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


def kill(run, out, **how):
    """Train in another process, which is killed in the second part, of 7 batches as all are."""
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
    done = subprocess.run([sys.executable, "-c", killed, json.dumps(run), str(out)], check=False, **how)
    assert done.returncode == -9


def as_json(paths):
    """The rows of raw files as JSON lines, without keys of missing values."""
    rows = [row for path in paths for row in csv.DictReader(path.read_text().splitlines())]
    return [json.dumps({name: value for name, value in row.items() if value}) + "\n" for row in rows]


@pytest.mark.slow
def test_rows_from_standard_input_are_on_the_disk_before_they_are_trained_on(days, tmp_path, monkeypatch):
    lines, rows = as_json(days[1:]), tmp_path / "rows.jsonl"
    run = {**OPTIONS, "data": str(days[0]), "stream": [str(days[0]), "-"], "part_rows": ROWS}
    rows.write_text("".join(lines[:450]) + '{"click": 1, "us')
    with rows.open() as sent:
        kill(run, tmp_path / "killed", stdin=sent)
    parts = tmp_path / "killed" / "input"
    written = "".join(path.read_text() for path in sorted(parts.iterdir())).splitlines(keepends=True)
    assert ROWS <= len(written) <= 450
    rows.write_text("".join(lines[len(written) : 450]) + '{"click": 1, "us')
    with rows.open() as sent, monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", sent)
        with pytest.raises(
            ValueError, match=r'must end with a line break, got b\'{"click": 1, "us\': its last row may'
        ):
            Trainer.resume(tmp_path / "killed").run()
    assert [line["rows"] for line in scored(tmp_path / "killed")] == [ROWS, ROWS, ROWS]
    rows.write_text("".join(lines[450:]))
    with rows.open() as sent, monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", sent)
        Trainer.resume(tmp_path / "killed").run()
    Trainer(config(days), tmp_path / "whole").run()
    assert last_bits(tmp_path / "killed")[0] == last_bits(tmp_path / "whole")[0]
    assert [sorted(path.name for path in parts.iterdir())] == [["000001.jsonl", "000002.jsonl", "000003.jsonl", "next"]]


@pytest.mark.slow
def test_several_processes_share_the_rows_of_each_part(days, tmp_path):
    Trainer(config(days), tmp_path / "alone").run()
    Trainer(config(days, max_steps=10), tmp_path / "together").run()
    result = two_processes(days[0], tmp_path, "stream")
    assert (tmp_path / "stream-1.done").exists(), result.stderr[-3000:]
    found, expected = scored(tmp_path / "together"), scored(tmp_path / "alone")
    assert [line["rows"] for line in found] == [ROWS] * DAYS
    assert [line["ids"] for line in found] == [line["ids"] for line in expected]
    assert [line["bce"] for line in found] == pytest.approx([line["bce"] for line in expected], abs=1e-5)


@pytest.mark.slow
def test_a_killed_stream_goes_on_in_a_folder_that_has_grown(days, tmp_path):
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for number, day in enumerate(days[:3]):
        day.rename(inbox / f"{number}{day.suffix}")
    run = {**OPTIONS, "data": str(inbox / "0"), "stream": [str(inbox)]}
    kill(run, tmp_path / "killed")
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


@pytest.mark.slow
def test_the_tables_of_a_stream_are_finalized_and_tomorrow_goes_on_from_its_rows(days, tmp_path):
    out, whole = tmp_path / "run", tmp_path / "whole"
    Trainer(config(days), whole).run()
    before = Trainer(config(days[:-1]), out).run()
    rows = last_bits(out)[0]
    assert curve_of_run(out)[-1]["bits"] is None
    assert last_bits(out)[0] == rows
    small = finalize_run(out, bits=2)
    assert small.scores == before.scores
    run = cce.load_run(out)
    assert all(table.is_final for table in run.model.tables.tables.values())
    assert 0 < run.evaluate(days[-1]).scores["bce"] < 0.8
    assert finalize_run(out).nbytes > small.nbytes
    for wrong in ({"tolerance": 0.001}, {"refits": "auto"}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} does not go with a stream, which keeps no rows"):
            finalize_run(out, **wrong)
    with pytest.raises(ValueError, match="must have an end for its int8 rows to be removed"):
        discard_rows(out)
    Trainer.resume(out, stream=[str(day) for day in days]).run()
    assert last_bits(out) == last_bits(whole)


@pytest.mark.slow
def test_what_a_stream_has_learned_is_shipped_as_deltas_whether_it_was_killed_or_not(days, tmp_path, capsys):
    def ship(name, *, is_killed):
        out, served = tmp_path / name, tmp_path / f"{name}-served"
        Trainer(config(days[:1]), out).run()
        finalize_run(out, bits=8)
        assert main(["export", str(out), str(served)]) == 0
        assert main(["export", str(out), "--since", str(served)]) == 0
        assert "nothing has changed" in capsys.readouterr().out
        bundle = numpy_reader.open_bundle(served / "model.safetensors")
        for number, day in enumerate(days[1:], start=1):
            parts = [str(day) for day in days[: number + 1]]
            if is_killed and number == 2:
                with contextlib.suppress(KeyboardInterrupt):
                    kill_at(Trainer.resume(out, stream=parts), step=16)
            Trainer.resume(out, stream=parts).run()
            assert main(["export", str(out), "--since", str(served), "--json"]) == 0
            report = json.loads(capsys.readouterr().out)
            assert report["number"] == number
            bundle_delta(bundle, report["path"])
        full = numpy_reader.open_bundle(served / "model.safetensors")
        ids = cce.hash_ids([f"u{user}" for user in range(80)])
        np.testing.assert_array_equal(bundle["user"].vectors(ids), full["user"].vectors(ids))
        assert bundle["user"].vectors(ids).any(1).sum() > 40
        files = {path.name: numpy_reader.map_file(path) for path in served.glob("*.safetensors")}
        assert len(files) == DAYS
        return {name: (checksum(*file), file.metadata) for name, file in files.items()}

    assert ship("whole", is_killed=False) == ship("killed", is_killed=True)


def kill_at(trainer, step):
    """Stop training in the middle of a part, as a crash does."""
    train_step = trainer.training.train_step

    def stop(*rows):
        if trainer.session.step == step:
            raise KeyboardInterrupt
        train_step(*rows)

    trainer.training.train_step = stop
    trainer.run()


@pytest.mark.slow
def test_what_became_of_ids_is_in_the_log_of_any_run_and_can_be_inspected(tmp_path):
    cce.prepare(write_day(tmp_path / "day.csv", 0), tmp_path / "open", split="random", open=True, **COLUMNS)
    run = OPTIONS | {"data": str(tmp_path / "open"), "method_options": {"max_rows": 20}, "refits": 0}
    Trainer(TrainConfig(**run), tmp_path / "run").run()
    lines = [line for line in RunFolder(tmp_path / "run").scan_log()[0] if line["kind"] == "ids"]
    assert len(lines) == 4  # one for each validation, and after finalize
    users = lines[-1]["ids"]["user"]
    assert users["rows"] + users["evicted"] == users["admitted"] > users["rows"] > 0
    found = inspect_checkpoint(tmp_path / "run")
    assert found.ids == lines[-1]["ids"]
    assert "ids with rows, and those that came and went  rows  admitted  refused  evicted" in str(found)


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
