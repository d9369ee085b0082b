"""What two processes do together, started by `torchrun`: `two_ranks.py DATA OUT JOB ...`."""

import copy
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import cce
from cce.collection import EmbeddingCollection
from cce.distributed import Ranks, broadcast, check_same, gather_rows, init_distributed, sum_over_ranks
from cce.reclustering import ClusterSchedule, Refit, Source
from cce.training import Trainer
from cce.training.stopping import DivergedError
from helpers.ratings import Ratings, make_model
from helpers.runs import CCE, NETWORK, tiny_config

TESTS = Path(__file__).resolve().parents[1]


def two_processes(data, out, *jobs):
    """Do jobs in two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [*command, __file__, str(data), str(out), *jobs],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )


def send(ranks, data, out):
    """Everything that can be sent."""
    mine = {
        "a": (torch.arange(5) + ranks.rank).to(torch.uint16),
        3: (1.5, None, [torch.ones((), dtype=torch.bfloat16)]),
    }
    got = broadcast(mine if ranks.rank == 1 else None, ranks, source=1)
    assert got["a"].dtype is torch.uint16
    assert got["a"].tolist() == [1, 2, 3, 4, 5]
    assert got[3] == (1.5, None, [torch.ones((), dtype=torch.bfloat16)])
    assert broadcast(torch.empty(0, 3) if ranks.is_main else None, ranks).shape == (0, 3)
    assert sum_over_ranks(torch.tensor([ranks.rank + 1]), ranks).tolist() == [3]
    rows = torch.full((2 + ranks.rank, 1), float(ranks.rank))
    assert gather_rows(rows, ranks).flatten().tolist() == [0, 0, 1, 1, 1]
    check_same({"one": torch.ones(3), "pointers": torch.ones(2, dtype=torch.uint16)})
    check_same({})
    differs = r"^other must be the same on all ranks, but ranks 0 and 1 differ\. Mend it\.$"
    with pytest.raises(RuntimeError, match=differs):
        check_same({"one": torch.ones(3), "other": torch.tensor(float(ranks.rank))}, advice="Mend it.")
    missing = r"^b must be the same on all ranks, but ranks 0 and 1 differ \(2 such tensors\)\.$"
    with pytest.raises(RuntimeError, match=missing):
        check_same({"a": torch.ones(3), "c" if ranks.rank else "b": torch.ones(3)})


def train(ranks, data, out):
    """Runs of tables that keep, replace and resize their parameters, and of one that counts its ids."""
    curves = {}
    for name, changes in RUNS.items():
        trainer = Trainer(tiny_config(data, **changes), out / name)
        curves[name] = run_in_step(trainer)
    trainer = Trainer.resume(out / "alone", max_steps=None)  # what one process began
    curves["alone"] = run_in_step(trainer)
    if ranks.is_main:
        (out / "curves.json").write_text(json.dumps(curves))


def stream(ranks, data, out):
    """The rest of a stream, which one process began."""
    run_in_step(Trainer.resume(out / "together", max_steps=None))


def run_in_step(trainer):
    """The curve of a run whose ranks hold the same bits after every step: weights, pointers, moments."""
    training, num_checks = trainer.training, 0
    after_step = training._after_step

    def checked(num_rows):
        nonlocal num_checks
        num_checks += 1
        check_same(everything(trainer.session))
        after_step(num_rows)

    def and_compare(event):
        def compared(*given):
            event(*given)
            check_same(everything(trainer.session))

        return compared

    training._after_step = checked
    trainer.finalizing.run = and_compare(trainer.finalizing.run)
    trainer.refitting._round = and_compare(trainer.refitting._round)
    curve = trainer.run().whole_curve
    assert num_checks >= 10
    return curve


def everything(session):
    """All tensors that the ranks share."""
    tensors = dict(session.model.state_dict())
    for index, state in session.optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{name} of parameter {index}"] = value
    return dict(sorted(tensors.items()))  # ranks repair their optimizers in different orders


EVERY_STEP = {"validations_per_epoch": 13}  # a curve of 26 scores, 7 of them before the first clustering
CHANGES = {
    "cce": {},
    "collide": {"method": "collide", "cap": 480},
    "momentum": {"optimizer": "sgd", "optimizer_options": {"momentum": 0.9}},
    "packed": {"cap": 160},  # ten rows: two pointers in a byte
    "first rows": {"method": "cce-first-rows"},
    "int8 rows": {**CCE, "refits": 2, "epochs": 1, "weight_decay": 1e-4},
    "refits": {**CCE, "refits": 2, "model_options": NETWORK, "epochs": 1, "optimizer": "sgd", "lr": 0.1},
    "together": {"max_steps": 10},
}
RUNS = {name: EVERY_STEP | changes for name, changes in CHANGES.items()}


def refit(ranks, data, out):
    """Each process passes over half of the rows, and all have what one alone has."""
    model, rows = make_model("gmf", method="cce"), Ratings(2_000)
    alone = copy.deepcopy(model)

    def losses(logits, batch):
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.labels, reduction="none")

    def source(model, numbers):
        return Source(model, lambda: [rows.fetch(numbers)], forward=lambda batch: (model(batch), batch), loss=losses)

    Refit(source(alone, np.arange(2_000))).round(generator=torch.Generator().manual_seed(0), ranks=Ranks())
    Refit(source(model, np.arange(ranks.rank, 2_000, 2))).round(generator=torch.Generator().manual_seed(0))
    check_same(model.state_dict())
    batch = rows.fetch(np.arange(2_000))
    with torch.no_grad():
        expected, found = (float(losses(each(batch), batch).mean()) for each in (alone, model))
    assert found == pytest.approx(expected, abs=1e-3)


def die(ranks, data, out):
    """The second process is killed while it trains."""
    trainer = Trainer(tiny_config(data, **EVERY_STEP), out / "died")
    train_step = trainer.training.train_step

    def step(*args):
        if ranks.rank == 1 and trainer.session.step == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        train_step(*args)

    trainer.training.train_step = step
    trainer.run()


def diverge(ranks, data, out):
    """The loss of the second process alone is not finite: both end, at the same step."""
    trainer = Trainer(tiny_config(data, **EVERY_STEP), out / "diverged")
    loss = trainer.training.loss
    trainer.training.loss = lambda batch: (
        loss(batch) * (float("inf") if (ranks.rank, trainer.session.step) == (1, 5) else 1.0)
    )
    with pytest.raises(DivergedError) as raised:
        trainer.run()
    (out / f"rank-{ranks.rank}.txt").write_text(str(raised.value))


def refuse(ranks, data, out):
    """A table of one process cannot be clustered: no table of any process is."""
    model = EmbeddingCollection({"user": 300, "item": 200}, 4, method="cce-paper", cap=80, seed=0)
    with torch.no_grad():
        model.tables["item"].codebook[0] = torch.nan
    before = {name: value.clone() for name, value in model.state_dict().items()}
    schedule = ClusterSchedule(model, every=1)
    with pytest.raises(
        (ValueError, RuntimeError), match=r"^table 'tables\.item' of feature 'item' cannot be clustered"
    ):
        schedule.step()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)
    assert schedule.num_steps == 0


if __name__ == "__main__":
    cce.plugins.load_plugins(["cce_lab.methods"])  # here: to import this file is not to register anything
    data_folder, out_folder, *jobs = sys.argv[1:]
    with init_distributed() as these_ranks:
        for job in jobs:
            globals()[job](these_ranks, Path(data_folder), Path(out_folder))
            (Path(out_folder) / f"{job}-{these_ranks.rank}.done").touch()
