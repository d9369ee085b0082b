"""The same model by the README's lines in a loop of one's own, by `cce train`, with full tables and with `cce-paper`.

    python -m benchmarks.own_loop [--data FOLDER] [--seeds 3] [--quick]

MovieLens 1M and Anime (`ml1m.parquet`, `anime.parquet`): users and items, numbered in the order in which they appear,
in a DeepFM. Every way has the same rows for training, validation and test, the same network, Adam and the same number
of epochs; its learning rate is the best of three on validation rows of the first seed. Scores are test BCE at the best
validated epoch. Bytes in training are those of tables, their gradients and optimizer state, computed; needs pyarrow.
"""

from __future__ import annotations

import argparse
import copy
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

import cce
from benchmarks.side_by_side import keep
from cce.reclustering import ClusterSchedule
from cce.run_folder import RunFolder
from cce.text import format_bytes, format_table

if TYPE_CHECKING:
    from collections.abc import Callable

SETS = {"MovieLens": "ml1m.parquet", "Anime": "anime.parquet"}
DIM, HIDDEN, BATCH, EPOCHS = 16, (64, 32), 2048, 4
RATES = (1e-3, 2e-3, 4e-3)
CLUSTERINGS = [0.5, 1.0, 1.5, 2.0]  # of cce-paper, in epochs


class DeepFM(nn.Module):
    """A plain torch model, as anybody would write it."""

    def __init__(self, num_users: int, num_items: int) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(num_users, DIM), nn.Embedding(num_items, DIM)
        for table in (self.user, self.item):
            nn.init.uniform_(table.weight, -(table.num_embeddings**-0.5), table.num_embeddings**-0.5)
        self.first_order = nn.Parameter(torch.zeros(2, DIM))
        layers: list[nn.Module] = []
        for inputs, outputs in zip((2 * DIM, *HIDDEN), HIDDEN, strict=False):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.network = nn.Sequential(*layers, nn.Linear(HIDDEN[-1], 1))
        for layer in self.network:
            if isinstance(layer, nn.Linear):  # as the models of `cce train` start
                nn.init.xavier_normal_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, ids: Tensor) -> Tensor:
        user, item = self.user(ids[:, 0]), self.item(ids[:, 1])
        linear = (user * self.first_order[0] + item * self.first_order[1]).sum(1)
        return linear + (user * item).sum(1) + self.network(torch.cat([user, item], 1)).squeeze(1)


class Rows:
    """A data set: ids in the order of appearance, labels, and three parts."""

    def __init__(self, path: Path, num_rows: int | None) -> None:
        import pyarrow as pa
        from pyarrow import compute, parquet

        table = parquet.read_table(path, columns=["c0", "c1", "label"]).slice(0, num_rows)
        self.raw = table
        columns = [compute.dictionary_encode(table[name].combine_chunks()) for name in ("c0", "c1")]
        ids = [torch.from_numpy(column.indices.to_numpy().astype("int64")) for column in columns]
        self.ids, self.sizes = torch.stack(ids, 1), [len(column.dictionary) for column in columns]
        self.labels = torch.from_numpy(table["label"].to_numpy().copy()).float()
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(0))
        cuts = [int(0.8 * len(order)), int(0.9 * len(order))]
        self.parts = dict(zip(("train", "validation", "test"), torch.tensor_split(order, cuts), strict=True))
        self._arrow = pa

    def write(self, folder: Path) -> dict[str, str]:
        """The parts as files, for `cce prepare`."""
        from pyarrow import parquet

        names = {}
        for part, rows in self.parts.items():
            names[part] = str(folder / f"{part}.parquet")
            parquet.write_table(self.raw.take(self._arrow.array(rows.numpy())), names[part])
        return names


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Rows, after_step: Callable[[], object]) -> float:
    """A plain loop; the model is left as it was at the best validated epoch, whose validation loss is returned."""
    best, weights = float("inf"), copy.deepcopy(model.state_dict())
    steps = EPOCHS * -(-len(rows.parts["train"]) // BATCH)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(EPOCHS):
        model.train()
        train = rows.parts["train"]
        for some in train[torch.randperm(len(train))].split(BATCH):
            optimizer.zero_grad()
            cross_entropy(model(rows.ids[some]), rows.labels[some]).backward()
            optimizer.step()
            scheduler.step()
            after_step()
        loss = score(model, rows, "validation")
        if loss < best:
            best, weights = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    return best


@torch.no_grad()
def score(model: nn.Module, rows: Rows, part: str) -> float:
    model.eval()
    losses = [
        cross_entropy(model(rows.ids[some]), rows.labels[some], reduction="sum")
        for some in rows.parts[part].split(65_536)
    ]
    return float(sum(losses)) / len(rows.parts[part])


def run_full(rows: Rows, lr: float) -> dict[str, float]:
    model = DeepFM(*rows.sizes)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    best = fit(model, optimizer, rows, lambda: None)
    held = cce.summary(model, optimizer)
    return _figures(model, rows, best, sum(table.training_nbytes for table in held.tables))


def run_own_loop(rows: Rows, lr: float) -> dict[str, float]:
    model = DeepFM(*rows.sizes)
    cce.compress(model)  # line 1
    optimizer = cce.optim.Adam(model, lr=lr)  # line 2, instead of torch.optim.Adam
    best = fit(model, optimizer, rows, lambda: None)
    held = sum(table.training_nbytes for table in cce.summary(model, optimizer).tables)
    cce.finalize(model, validate=lambda: score(model, rows, "validation"))  # line 3
    return _figures(model, rows, best, held)


def run_paper(rows: Rows, lr: float) -> dict[str, float]:
    model = DeepFM(*rows.sizes)
    cce.compress(model, method="cce-paper", cap=4096)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    steps = -(-len(rows.parts["train"]) // BATCH)
    schedule = ClusterSchedule(model, optimizer, at_epochs=CLUSTERINGS, steps_per_epoch=steps)
    best = fit(model, optimizer, rows, schedule.step)
    held = sum(table.training_nbytes for table in cce.summary(model, optimizer).tables)
    return _figures(model, rows, best, held)


def _figures(model: nn.Module, rows: Rows, validation: float, held: int) -> dict[str, float]:
    served = cce.summary(model).nbytes
    return {"validation": validation, "test": score(model, rows, "test"), "held": held, "served": served}


def run_trainer(rows: Rows, lr: float, seed: int, folder: Path) -> dict[str, float]:
    """`cce prepare` and `cce train` on the same rows."""
    data, out = folder / "data", folder / f"run-{seed}-{lr}"
    if not data.exists():
        parts = rows.write(folder)
        given = [word for part, name in parts.items() for word in (f"--{part}", name)]
        _cce("prepare", "table", *given, "--label", "label", "--categorical", "c0", "c1", "--", str(data))
    options = ["--model", "deepfm", "--model-options", f"hidden={list(HIDDEN)}", "--optimizer", "adam", "--lr", str(lr)]
    options += ["--batch-size", str(BATCH), "--epochs", str(EPOCHS), "--lr-schedule", "cosine", "--refits", "0"]
    options += ["--validations-per-epoch", "1", "--no-early-stopping", "--seed", str(seed), "--out", str(out)]
    _cce("train", str(data), *options)
    record = RunFolder(out).read_record()
    best = min(each["bce"] for each in record.curve)
    held = record.training_nbytes or 0
    return {"validation": best, "test": record.scores["bce"], "held": held, "served": record.nbytes}


def _cce(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "cce", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"cce {' '.join(words)}: {done.stderr[-2000:]}")


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CCE_DATA", "../shared/data")))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="100,000 rows, one rate and one seed")
    options = parser.parse_args(argv)
    figures: list[dict[str, Any]] = []
    for name, file in SETS.items():
        rows = Rows(options.data / file, 100_000 if options.quick else None)
        with tempfile.TemporaryDirectory() as folder:
            ways: dict[str, Callable[[float, int], dict[str, float]]] = {
                "full table": lambda lr, _: run_full(rows, lr),  # noqa: B023
                "cce, own loop": lambda lr, _: run_own_loop(rows, lr),  # noqa: B023
                "cce train": lambda lr, seed: run_trainer(rows, lr, seed, Path(folder)),  # noqa: B023
                "cce-paper, own loop": lambda lr, _: run_paper(rows, lr),  # noqa: B023
            }
            for way, run in ways.items():
                figures += _measure(
                    name, way, run, (2e-3,) if options.quick else RATES, 1 if options.quick else options.seeds
                )
    lines = [
        (each["set"], each["way"], f"{each['lr']:g}", f"{each['test']:.4f}", format_bytes(each["held"]),
         format_bytes(each["served"]), f"{each['seconds']:.0f}")
        for each in figures
    ]  # fmt: skip
    print(format_table(("set", "way", "lr", "test BCE", "in training", "served", "seconds"), lines, num_left=2))
    if not options.quick:
        print(keep("own_loop", figures))
    return figures


def _measure(
    name: str, way: str, run: Callable[[float, int], dict[str, float]], rates: tuple[float, ...], seeds: int
) -> list[dict[str, Any]]:
    """The scores of all seeds at the rate that is best on validation rows of the first."""
    found = {lr: _timed(run, lr, 0) for lr in rates}
    best = min(found, key=lambda lr: found[lr]["validation"])
    others = [_timed(run, best, seed) for seed in range(1, seeds)]
    return [
        {"set": name, "way": way, "lr": best, "seed": seed} | each for seed, each in enumerate([found[best], *others])
    ]


def _timed(run: Callable[[float, int], dict[str, float]], lr: float, seed: int) -> dict[str, float]:
    torch.manual_seed(seed)
    started = time.perf_counter()
    return run(lr, seed) | {"seconds": time.perf_counter() - started}


if __name__ == "__main__":
    main()
