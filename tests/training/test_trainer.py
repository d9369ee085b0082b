"""The loop: what is learned, when things happen, and that a run which was stopped or killed ends with the same bits."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
import torch

from cce.files import FolderInUseError
from cce.run_folder import RunFolder
from cce.training import Trainer
from cce.training.checkpoint import list_checkpoints, read_checkpoint, write_checkpoint
from cce.training.config import to_toml
from helpers.runs import tiny_config, tiny_data

pytestmark = pytest.mark.slow


def last_bits(out):
    """All tensors of the last checkpoint, and what was scored on the way."""
    checkpoint = read_checkpoint(list_checkpoints(out / "checkpoints")[-1])
    optimizer = checkpoint.state["optimizers"][0]["state"]
    tensors = dict(checkpoint.model)
    tensors |= {f"{index}.{name}": value for index, state in optimizer.items() for name, value in state.items()}
    tensors |= {
        "random": checkpoint.state["random"]["torch"],
        "schedule": checkpoint.state["phases"]["train"]["schedule"]["generator"],
    }
    return checkpoint.step, tensors, checkpoint.state["curve"], checkpoint.state["stopping"]


def bits(tensor):
    if isinstance(tensor, int):
        return tensor
    return (tensor.dtype, tensor.shape, tensor.reshape(-1).view(torch.uint8).tolist())


def log_of(out):
    """The log, without what depends on the clock."""
    lines = [line for line in RunFolder(out).scan_log()[0] if line["kind"] != "memory"]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def assert_same_end(first, second):
    one, two = last_bits(first), last_bits(second)
    assert one[0] == two[0]
    assert one[1].keys() == two[1].keys()
    for name, tensor in one[1].items():
        assert bits(tensor) == bits(two[1][name]), name
    assert one[2:] == two[2:]
    assert log_of(first) == log_of(second)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A run that nobody disturbed."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    record = Trainer(tiny_config(data), out).run()
    return out, record


def test_a_run_learns_and_leaves_what_it_promised(whole):
    out, record = whole
    assert {path.name for path in out.iterdir()} == {"config.toml", "metrics.jsonl", "record.jsonl", "checkpoints"}
    assert record.peak_nbytes.keys() == {"train"}
    assert record.resolved["max_steps"] == 26
    assert record.config["max_steps"] is None
    assert 0 < record.scores["auc"] < 1  # of 100 rows, by the model of step 4
    assert [validation["step"] for validation in record.curve] == [4, 9, 13, 17, 22, 26]
    assert record.num_params == 320 + 320 + 31 * 8
    assert record.samples_per_second > 0
    assert set(record.seconds_by_part) == {"train", "cluster", "validate", "save", "test"}


def test_the_log_has_everything_that_happened(data, tmp_path, monkeypatch):
    monkeypatch.setattr("cce.training.phases.LOG_EVERY", 5)
    Trainer(tiny_config(data), tmp_path / "run").run()
    lines = log_of(tmp_path / "run")
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    assert losses[-1] < losses[0]
    steps = {kind: sorted({line["step"] for line in lines if line["kind"] == kind}) for kind in ("train", "cluster")}
    assert steps == {"train": [5, 10, 15, 20, 25], "cluster": [7, 14, 21]}
    assert sum(line["kind"] == "cluster" for line in lines) == 6  # two tables of three are clustered
    assert lines[-1]["kind"] == "test"


def test_the_best_checkpoint_is_the_one_that_is_tested_and_kept(whole):
    out, record = whole
    best = min(record.curve, key=lambda scores: scores["bce"])
    kept = [read_checkpoint(path).step for path in list_checkpoints(out / "checkpoints")]
    assert set(kept) == {best["step"], 22, 26}


def test_the_same_seed_gives_the_same_bits_and_another_does_not(whole, data, tmp_path):
    Trainer(tiny_config(data), tmp_path / "again").run()
    assert_same_end(whole[0], tmp_path / "again")
    other = Trainer(tiny_config(data, seed=1), tmp_path / "other").run()
    assert other.curve != whole[1].curve


@pytest.mark.parametrize("stop", [4, 14])
def test_a_run_that_was_stopped_ends_with_the_same_bits(whole, data, tmp_path, stop):
    with pytest.raises(KeyboardInterrupt, match=f"saved after step {stop}; resume with `cce train --resume"):
        stopping_trainer(data, tmp_path / "run", stop).run()
    Trainer.resume(tmp_path / "run").run()
    assert_same_end(whole[0], tmp_path / "run")


def stopping_trainer(data, out, stop, **changes):
    """A trainer to which someone sends Ctrl-C while it trains its step number `stop`."""
    trainer = Trainer(tiny_config(data, **changes), out)
    loss = trainer.training.loss

    def loss_and_signal(batch):
        if trainer.session.step == stop - 1:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(batch)

    trainer.training.loss = loss_and_signal
    return trainer


KILLED = """
import os, signal, sys
from pathlib import Path
import torch._dynamo  # by optimizers: once here, and not in every child
from cce.reclustering import schedule
from cce.training import checkpoint, Trainer
from cce.training.phases import TrainPhase
from cce.embeddings import cluster_step, clustered
from cce.training.config import make_config, read_toml

KILL_POINTS = {
    "step": (TrainPhase, "_after_step"),
    "assign": (cluster_step, "encode_all"),  # inside a clustering, before anything has changed
    "swap": (clustered.ClusteredEmbedding, "become"),  # half-way through the swap
    "repair": (schedule, "repair_optimizer"),  # a table is clustered, and its optimizer not told
    "write": (checkpoint, "save_file"),  # the model is written, the rest is not
    "rename": (checkpoint, "flush"),
    "prune": (checkpoint.shutil, "rmtree"),
}

def run_and_die(kind, count, out):
    owner, name = KILL_POINTS[kind]
    function, seen = getattr(owner, name), [0]

    def wrapper(*args, **kwargs):
        seen[0] += 1
        if seen[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    setattr(owner, name, wrapper)
    Trainer(make_config(read_toml(Path(sys.argv[1]))), out).run()

for case in sys.argv[3:]:
    kind, count = case.split("-")
    if not (child := os.fork()):
        run_and_die(kind, int(count), Path(sys.argv[2]) / case)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, case
"""
KILL_POINTS = ("step-2", "step-13", "assign-2", "swap-3", "repair-3", "write-5", "rename-7", "prune-8")


@pytest.fixture(scope="module")
def killed(data, tmp_path_factory):
    """A folder of runs that were killed with SIGKILL, each at a different point; one process forks all of them."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "config.toml").write_text(to_toml(tiny_config(data)))
    command = [sys.executable, "-c", KILLED, str(folder / "config.toml"), str(folder), *KILL_POINTS]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.parametrize("point", KILL_POINTS)
def test_a_run_that_was_killed_ends_with_the_same_bits(whole, killed, point):
    Trainer.resume(killed / point).run()
    assert_same_end(whole[0], killed / point)
    assert not list((killed / point / "checkpoints").glob("*.part"))


def crashing_trainer(data, out, step, **changes):
    """A trainer that fails in its step number `step`, without saving anything."""
    trainer = Trainer(tiny_config(data, **changes), out)
    train_step = trainer.training.train_step

    def crash(*args):
        if trainer.session.step == step - 1:
            raise RuntimeError("crashed")
        train_step(*args)

    trainer.training.train_step = crash
    return trainer


def test_a_clustering_right_after_a_checkpoint_is_told_once(data, tmp_path):
    often = {"validations_per_epoch": 13}
    whole = Trainer(tiny_config(data, **often), tmp_path / "whole").run()
    with pytest.raises(RuntimeError, match="crashed"):
        crashing_trainer(data, tmp_path / "run", 8, **often).run()
    kinds = ["validation", "cluster", "cluster"]
    assert [line["kind"] for line in log_of(tmp_path / "run") if line["step"] == 7] == kinds
    record = Trainer.resume(tmp_path / "run").run()
    assert_same_end(tmp_path / "whole", tmp_path / "run")
    events = [[(event["step"], event["table"]) for event in each.events] for each in (record, whole)]
    assert events[0] == events[1]


def test_a_run_that_is_alive_is_neither_resumed_nor_begun_again(data, tmp_path):
    trainer = Trainer(tiny_config(data, max_steps=3), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    message = rf"^{tmp_path / 'run'} is in use by process {os.getpid()} on .* since "
    for begin in (lambda: Trainer.resume(tmp_path / "run"), lambda: Trainer(tiny_config(data), tmp_path / "run")):
        with pytest.raises(FolderInUseError, match=message):
            begin()
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    trainer.run()
    Trainer.resume(tmp_path / "run").run()  # it is free again


def test_a_data_set_without_test_rows_gives_a_run_without_test_scores(tmp_path):
    data = tiny_data(tmp_path / "data")
    manifest = json.loads((data / "manifest.json").read_text())
    rows = dict(manifest["splits"])
    assert rows["test"] == 100
    empty_split(data, "test")
    record = Trainer(tiny_config(data), tmp_path / "run").run()
    assert record.scores == {}
    assert record.curve
    assert not [line for line in log_of(tmp_path / "run") if line["kind"] == "test"]
    assert (tmp_path / "run" / "record.jsonl").exists()
    empty_split(data, "train")
    with pytest.raises(ValueError, match=f"data must have training rows, got none in {data}"):
        Trainer(tiny_config(data), tmp_path / "other")


def empty_split(data, split):
    """Take all rows of a split away, as `cce prepare` leaves a split that no row falls into."""
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["splits"][split] = 0
    for name, facts in manifest["files"].items():
        if name.startswith(f"{split}."):
            (data / name).write_bytes(b"")
            facts |= {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    (data / "manifest.json").write_text(json.dumps(manifest))


def test_a_run_whose_best_checkpoint_is_damaged_ends_with_the_last_model(data, tmp_path, capsys):
    with pytest.raises(RuntimeError, match="crashed"):
        crashing_trainer(data, tmp_path / "run", 24).run()
    (last,) = (path for path in list_checkpoints(tmp_path / "run" / "checkpoints") if path.name.endswith("22"))
    spoil = read_checkpoint(last)
    spoil.state["stopping"] |= {"best": -1.0, "best_step": 17}  # nothing that is to come is better
    write_checkpoint(last.parent, 22, spoil.model, spoil.state)
    damaged = tmp_path / "run" / "checkpoints" / "step-0000000017" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    Trainer.resume(tmp_path / "run", progress=True).run()
    assert log_of(tmp_path / "run")[-1]["best_step"] == 26
    told = f"{damaged} is not what was written: the checkpoint was damaged. The model of step 26 is kept, in place of"
    assert told in capsys.readouterr().err


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(whole, data, tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        stopping_trainer(data, tmp_path / "run", 11).run()
    latest = list_checkpoints(tmp_path / "run" / "checkpoints")[-1]
    content = bytearray((latest / "training.safetensors").read_bytes())
    content[-1] ^= 1
    (latest / "training.safetensors").write_bytes(content)
    Trainer.resume(tmp_path / "run", progress=True).run()
    assert f"{latest / 'training.safetensors'} is not what was written" in capsys.readouterr().err
    assert_same_end(whole[0], tmp_path / "run")


@pytest.mark.parametrize(
    ("method", "cap"), [("collide", 480), ("dhe", 480), ("quantized", None), ("cce-paper", 160), ("cce-paper", 32)]
)
def test_runs_of_other_methods_and_widths_of_pointers_are_resumed_as_well(data, tmp_path, method, cap):
    for name, changes in (("whole", {}), ("parts", {"max_steps": 10})):
        Trainer(tiny_config(data, method=method, cap=cap, **changes), tmp_path / name).run()
    Trainer.resume(tmp_path / "parts", max_steps=None).run()
    one, two = (read_checkpoint(list_checkpoints(tmp_path / name / "checkpoints")[-1]) for name in ("whole", "parts"))
    assert all(torch.equal(tensor, two.model[name]) for name, tensor in one.model.items())


def test_weight_decay_of_the_tables_leaves_the_network_alone(data, tmp_path):
    norms = {}
    runs = {"none": {}, "tables": {"weight_decay": 0.1}}
    for name, changes in runs.items():
        trainer = Trainer(tiny_config(data, optimizer="adamw", lr=0.05, cluster_at="never", **changes), tmp_path / name)
        trainer.run()
        weights = trainer.session.model.state_dict()
        norms[name] = [
            sum(w.square().sum() for n, w in weights.items() if n.endswith(end)) for end in ("codebook", "weight")
        ]
    assert norms["tables"][0] < 0.95 * norms["none"][0]
    assert norms["tables"][1] > 0.95 * norms["none"][1]


def test_training_stops_when_an_epoch_is_worse_than_the_last(data, tmp_path):
    options = {"method": "full", "cap": None, "lr": 0.1, "epochs": 30, "early_stopping": True}
    record = Trainer(tiny_config(data, **options), tmp_path / "run").run()
    by_epoch = {}
    for scores in record.curve:
        by_epoch.setdefault(scores["epoch"], []).append(scores["bce"])
    best = [min(scores) for scores in by_epoch.values()]
    assert len(best) < 30
    assert best[-1] > best[-2]
    assert best[:-1] == sorted(best[:-1], reverse=True)


RANDOM_MODEL = """
import random
import numpy as np
from torch import nn
from cce.models import DLRM

class Random(DLRM):
    def forward(self, batch):
        noise = random.random() + np.random.rand() if self.training else 1.0
        return nn.functional.dropout(super().forward(batch), 0.1, self.training) * noise
"""


def test_a_model_that_draws_random_numbers_goes_on_drawing_them(data, tmp_path):
    (tmp_path / "model.py").write_text(RANDOM_MODEL)
    options = {"model": f"{tmp_path / 'model.py'}:Random", "epochs": 1}
    for name, changes in (("whole", {}), ("parts", {"max_steps": 6})):
        Trainer(tiny_config(data, **options, **changes), tmp_path / name).run()
    Trainer.resume(tmp_path / "parts", max_steps=None, model=options["model"]).run()
    assert last_bits(tmp_path / "whole")[2] == last_bits(tmp_path / "parts")[2]
    one, two = (last_bits(tmp_path / name)[1] for name in ("whole", "parts"))
    assert all(bits(one[name]) == bits(two[name]) for name in one)


def test_the_record_tells_of_every_clustering_of_every_table(data, tmp_path):
    config = tiny_config(data, optimizer="adam", cluster_at=[3 / 13, 6 / 13])
    record = Trainer(config, tmp_path / "run").run()
    clustered = {table.name for table in record.tables if table.method == "cce-paper"}
    assert clustered
    assert [event["step"] for event in record.events] == sorted([3, 6] * len(clustered))
    assert {event["table"] for event in record.events} == clustered
    assert all({"churn", "H1", "H2", "dead_rows", "seconds"} <= event.keys() for event in record.events)
    assert all(table.optimizer_nbytes >= 8 * table.num_params for table in record.tables)


def test_the_first_metric_leads_and_all_that_are_asked_for_are_kept(data, tmp_path):
    metrics = ["auc", "ece", "calibration"]
    config = tiny_config(data, metrics=metrics, early_stopping=False)
    record = Trainer(config, tmp_path / "run").run()
    assert list(record.scores) == metrics
    assert all(set(scores) == {"step", "epoch", *metrics} for scores in record.curve)
    best = max(record.curve, key=lambda scores: scores["auc"])["step"]
    assert best != min(record.curve, key=lambda scores: scores["ece"])["step"]  # or this test says nothing
    log = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert next(line for line in log if line["kind"] == "test")["best_step"] == best
    assert next(line for line in log if line["kind"] == "validation")["ece"] == record.curve[0]["ece"]


def test_damaged_rows_stop_a_run_before_it_trains_unless_it_is_told_not_to_look(data, tmp_path):
    copy, trusted = tmp_path / "data", tmp_path / "trusted"
    shutil.copytree(data, copy)
    content = bytearray((copy / "train.rows").read_bytes())
    content[0] ^= 1  # the lowest bit of a label: a value like any other
    (copy / "train.rows").write_bytes(content)
    with pytest.raises(ValueError, match=r"train\.rows must have the SHA-256 .*: it was damaged or changed\.$"):
        Trainer(tiny_config(copy), tmp_path / "verified")
    Trainer(tiny_config(copy, verify=False, max_steps=2), trusted).run()
    Trainer.resume(trusted, max_steps=3).run()
    assert last_bits(trusted)[0] == 3
    with pytest.raises(ValueError, match=r"train\.rows must have the SHA-256"):
        Trainer.resume(trusted, max_steps=4, verify=True)
