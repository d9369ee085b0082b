"""Eight real data sets, two models, plain PyTorch loops: what `cce` by default loses or gains against full tables.

    python -m benchmarks.real_sets run [--sets NAME …] [--models NAME …] [--ways NAME …] [--seeds 3] [--data FOLDER]
    python -m benchmarks.real_sets table        # write the tables of docs/results.md and README.md from the records

Every way has the same rows, network, Adam, batches and number of epochs. Its learning rate is the one of `RATES` with
the lowest loss on validation rows for seed 0. Scores are test BCE of the weights that validated best; nothing else
looks at test rows. A run that is in the records is not repeated, so `run` can be stopped at any time. Needs pyarrow.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import time
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

import cce
from benchmarks.side_by_side import RESULTS, machine

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = RESULTS / "real_sets.jsonl"
SETS = {  # epochs, and whether test rows are the latest
    "ml1m": (2, False),
    "anime": (2, False),
    "bookcrossing": (1, False),
    "criteo_dac80k": (2, False),
    "debian_deps": (2, False),
    "tennis": (1, True),
    "grocery_repeat": (1, True),
    "movietweetings": (2, True),
}
RATES = (1e-3, 3e-3, 6e-3)
DIM, HIDDEN, BATCH, VALIDATIONS = 16, (64, 32), 2048, 3
DAYS_BETWEEN = {"grocery_repeat": 28}  # the label looks ahead so far
LARGE = 20_000  # values of a table that is worth compressing: the default of `cce.compress`


class Rows(NamedTuple):
    """A data set in memory: ids in the order of appearance."""

    ids: Tensor  # (rows, features)
    dense: Tensor  # (rows, dense features), normalised by the training rows
    labels: Tensor
    sizes: list[int]  # ids of each feature
    parts: dict[str, Tensor]  # row numbers


def read_rows(folder: Path, name: str) -> Rows:
    """All categorical and dense columns, split 80/10/10 at random or by time."""
    from pyarrow import compute, parquet

    table = parquet.read_table(folder / f"{name}.parquet")
    names = {kind: [each for each in table.column_names if each[0] == kind and each[1:].isdigit()] for kind in "cd"}
    encoded = [compute.dictionary_encode(table[each].combine_chunks()) for each in names["c"]]
    ids = np.stack([each.indices.to_numpy(zero_copy_only=False).astype(np.int64) for each in encoded], axis=1)
    times = table["timestamp"].to_numpy() if SETS[name][1] else None
    parts = _split(len(table), times, DAYS_BETWEEN.get(name, 0))
    dense = np.zeros((len(table), 0))
    if names["d"]:
        columns = [table[each].to_numpy(zero_copy_only=False).astype(np.float64) for each in names["d"]]
        dense = _normalised(np.stack(columns, axis=1), parts["train"])
    return Rows(
        torch.from_numpy(ids),
        torch.from_numpy(dense).float(),
        torch.from_numpy(table["label"].to_numpy().copy()).float(),
        [len(each.dictionary) for each in encoded],
        {part: torch.from_numpy(rows) for part, rows in parts.items()},
    )


def _split(num_rows: int, times: np.ndarray[Any, Any] | None, days_between: int) -> dict[str, np.ndarray[Any, Any]]:
    if times is None:
        order = np.random.default_rng(0).permutation(num_rows)
        known = order[: int(0.9 * num_rows)]
    else:
        order = np.argsort(times, kind="stable")
        first_of_test = times[order[int(0.9 * num_rows)]]
        seconds = 86_400 if times.max() > 1e7 else 1
        known = order[: np.searchsorted(times[order], first_of_test - days_between * seconds)]
    cut = int(len(known) * 8 / 9)
    return {"train": known[:cut], "validation": known[cut:], "test": order[int(0.9 * num_rows) :].copy()}


def _normalised(values: np.ndarray[Any, Any], train: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    is_missing = np.isnan(values)
    values = np.sign(values) * np.log1p(np.abs(values))
    values = (values - np.nanmean(values[train], axis=0)) / (np.nanstd(values[train], axis=0) + 1e-6)
    values[is_missing] = 0
    return values


# -- models, as anybody would write them -------------------------------------------------------------------------------


class Tables(nn.Module):
    """A table for each feature, with DLRM's start: the best start of full tables."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, DIM) for size in sizes)
        for table, size in zip(self.tables, sizes, strict=True):
            nn.init.uniform_(table.weight, -(size**-0.5), size**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.stack([table(column) for table, column in zip(self.tables, ids.unbind(1), strict=True)], dim=1)


def network(num_inputs: int, *hidden: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in zip((num_inputs, *hidden), hidden, strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    layers.append(nn.Linear(hidden[-1], 1))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class DeepFM(nn.Module):
    """Guo et al. (2017)."""

    def __init__(self, sizes: list[int], num_dense: int) -> None:
        super().__init__()
        self.embedding = Tables(sizes)
        self.first_order = nn.Parameter(torch.zeros(len(sizes), DIM))
        self.network = network(len(sizes) * DIM + num_dense, *HIDDEN)

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        vectors = self.embedding(ids)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        linear = (vectors * self.first_order).sum((1, 2))
        output: Tensor = linear + pairs + self.network(torch.cat([vectors.flatten(1), dense], 1)).squeeze(1)
        return output


class DLRM(nn.Module):
    """Naumov et al. (2019): dot products of all pairs of vectors, and dense values, into a network."""

    def __init__(self, sizes: list[int], num_dense: int) -> None:
        super().__init__()
        self.embedding = Tables(sizes)
        self.bottom = nn.Sequential(nn.Linear(num_dense, DIM), nn.ReLU()) if num_dense else None
        num_vectors = len(sizes) + bool(num_dense)
        self.register_buffer("pairs", torch.tril_indices(num_vectors, num_vectors, -1), persistent=False)
        self.top = network(num_vectors * (num_vectors - 1) // 2 + (DIM if num_dense else 0), *HIDDEN)

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        vectors, inputs = self.embedding(ids), []
        if self.bottom is not None:
            inputs.append(self.bottom(dense))
            vectors = torch.cat([inputs[0].unsqueeze(1), vectors], 1)
        products = vectors @ vectors.transpose(1, 2)
        output: Tensor = self.top(torch.cat([products[:, self.pairs[0], self.pairs[1]], *inputs], 1)).squeeze(1)
        return output


MODELS: dict[str, type[DeepFM] | type[DLRM]] = {"deepfm": DeepFM, "dlrm": DLRM}


# -- one run -----------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """What a way of making tables gets."""

    rows: Rows
    model: nn.Module
    lr: float
    epochs: int
    served: int  # bytes of the tables that `cce` serves, which rivals may have as well; 0 if not known yet


def fit(job: Job, optimizer: torch.optim.Optimizer, after_step: Callable[[], object] = lambda: None) -> float:
    """A plain loop; the model is left with the weights that validated best. Returns their validation loss."""
    model, rows, train = job.model, job.rows, job.rows.parts["train"]
    steps = -(-len(train) // BATCH)
    validated_at = {steps * (index + 1) // VALIDATIONS for index in range(VALIDATIONS)}
    best, weights = float("inf"), {}
    for _ in range(job.epochs):
        for step, some in enumerate(train[torch.randperm(len(train))].split(BATCH), 1):
            optimizer.zero_grad()
            cross_entropy(model(rows.ids[some], rows.dense[some]), rows.labels[some]).backward()
            optimizer.step()
            after_step()
            if step in validated_at and (loss := score(model, rows, "validation")) < best:
                best, weights = loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    return best


@torch.no_grad()
def score(model: nn.Module, rows: Rows, part: str) -> float:
    """The mean BCE of a part of the rows."""
    model.eval()
    losses = [
        float(cross_entropy(model(rows.ids[some], rows.dense[some]), rows.labels[some], reduction="sum"))
        for some in rows.parts[part].split(65_536)
    ]
    model.train()
    return sum(losses) / len(rows.parts[part])


def full(job: Job) -> dict[str, Any]:
    optimizer = torch.optim.Adam(job.model.parameters(), lr=job.lr)
    validation = fit(job, optimizer)
    return {"validation": validation, "held": held_in_training(job.model, optimizer)}


def merged(job: Job) -> dict[str, Any]:
    """Full tables in which values that occur once in training, or never, are one id."""
    rows, ids = job.rows, job.rows.ids.clone()
    for feature, size in enumerate(rows.sizes):
        counts = torch.bincount(ids[rows.parts["train"], feature], minlength=size)
        rare = (counts < 2).nonzero().squeeze(1)
        if len(rare):
            ids[:, feature] = torch.where(counts[ids[:, feature]] < 2, rare[0], ids[:, feature])
    return full(job._replace(rows=rows._replace(ids=ids))) | {
        "test": score(job.model, rows._replace(ids=ids), "test"),
        "served": 4 * DIM * sum(len(torch.unique(column)) for column in ids[rows.parts["train"]].unbind(1)),
    }


def sparse(job: Job) -> dict[str, Any]:
    """Full tables with sparse gradients: the fast way of torch."""
    for table in job.model.embedding.tables:
        table.sparse = True
    of_tables = list(job.model.embedding.parameters())
    known = {id(each) for each in of_tables}
    others = [each for each in job.model.parameters() if id(each) not in known]
    optimizers = torch.optim.SparseAdam(of_tables, lr=job.lr), torch.optim.Adam(others, lr=job.lr)
    return {"validation": fit(job, _Both(optimizers)), "held": 3 * sum(each.nbytes for each in of_tables)}


class _Both(torch.optim.Optimizer):
    """Two optimizers as one."""

    def __init__(self, optimizers: tuple[torch.optim.Optimizer, ...]) -> None:
        self.optimizers = optimizers

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002
        for each in self.optimizers:
            each.zero_grad(set_to_none)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for each in self.optimizers:
            each.step(closure)


def cce_default(job: Job, **options: Any) -> dict[str, Any]:
    """The README's lines."""
    cce.compress(job.model, **options)
    optimizer = cce.optim.Adam(job.model, lr=job.lr)
    of_rows = fit(job, optimizer)
    held = held_in_training(job.model, optimizer)
    sizes = cce.finalize(job.model, validate=lambda: score(job.model, job.rows, "validation"))
    assert sizes.chosen is not None
    curve = [[size.nbytes, round(size.bits, 2), size.loss] for size in sizes.curve]
    validation = sizes.chosen.loss if sizes.chosen.loss is not None else of_rows
    return {"validation": validation, "of_rows": of_rows, "held": held, "bits": sizes.chosen.bits, "curve": curve}


def quantized(job: Job) -> dict[str, Any]:
    """Product quantisation of full tables after their training, weighted by counts, in the bytes of `cce`."""
    found = full(job)
    paths = {table: path for path, table in job.model.named_modules() if isinstance(table, nn.Embedding)}
    train = job.rows.ids[job.rows.parts["train"]]
    counts = {
        paths[table]: torch.bincount(train[:, index], minlength=table.num_embeddings)
        for index, table in enumerate(job.model.embedding.tables)
        if table.weight.numel() >= LARGE
    }
    cce.compress(job.model, start="trained")
    small = sum(
        table.weight.nbytes for table in paths if isinstance(table, nn.Embedding) and paths[table] not in counts
    )
    cce.finalize(job.model, nbytes=max(job.served - small, 1), counts=counts)
    return found | {"validation": score(job.model, job.rows, "validation")}


def int8_afterwards(job: Job) -> dict[str, Any]:
    """Full tables, rounded to int8 rows after their training."""
    found = full(job)
    cce.compress(job.model, method="quantized", start="trained")
    return found | {"validation": score(job.model, job.rows, "validation")}


def rival(method: str) -> Callable[[Job], dict[str, Any]]:
    """Another method in the bytes of `cce`."""

    def train(job: Job) -> dict[str, Any]:
        job = job._replace(rows=_numbered_by_count(job.rows))  # which mixed-dim relies on
        kept = sum(each.weight.nbytes for each in job.model.embedding.tables if each.weight.numel() < LARGE)
        cce.compress(job.model, method=method, nbytes=max(job.served - kept, 1), seed=0)
        optimizer = torch.optim.Adam(job.model.parameters(), lr=job.lr)
        found = {"validation": fit(job, optimizer), "held": held_in_training(job.model, optimizer)}
        return found | {"test": score(job.model, job.rows, "test")}

    return train


def _numbered_by_count(rows: Rows) -> Rows:
    ids = rows.ids.clone()
    for feature, size in enumerate(rows.sizes):
        counts = torch.bincount(ids[rows.parts["train"], feature], minlength=size)
        ids[:, feature] = counts.argsort(descending=True, stable=True).argsort()[ids[:, feature]]
    return rows._replace(ids=ids)


def paper(job: Job) -> dict[str, Any]:
    """Algorithm 3 of the paper, with tables of at most 4,096 parameters."""
    cce.compress(job.model, method="cce-paper", cap=4096, seed=0)
    optimizer = torch.optim.Adam(job.model.parameters(), lr=job.lr)
    steps = -(-len(job.rows.parts["train"]) // BATCH)
    at_epochs = [share * job.epochs for share in (0.25, 0.5)]
    schedule = cce.ClusterSchedule(job.model, optimizer, at_epochs=at_epochs, steps_per_epoch=steps)
    return {"validation": fit(job, optimizer, schedule.step), "held": held_in_training(job.model, optimizer)}


def held_in_training(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of tables, of their gradients and of optimizer state, computed."""
    return sum(table.training_nbytes for table in cce.summary(model, optimizer).tables)


WAYS: dict[str, Callable[[Job], dict[str, Any]]] = {
    "full": full,
    "cce": cce_default,
    "cce-min-count-2": lambda job: cce_default(job, min_count=2),
    "full-sparse": sparse,
    "full-merged": merged,
    "int8-after": int8_afterwards,
    "pq": quantized,
    "hash": rival("hash"),
    "ce-concat": rival("ce-concat"),
    "mixed-dim": rival("mixed-dim"),
    "cce-paper": paper,
}


# -- all runs ----------------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> None:
    """All runs that are not in the records yet."""
    torch.set_num_threads(1)
    for name in options.sets:
        rows = read_rows(options.data, name)
        for model in options.models:
            for way in options.ways:
                run_way(rows, name, model, way, options.seeds)


def run_way(rows: Rows, name: str, model: str, way: str, seeds: int) -> None:
    """All rates with seed 0, and the best of them with the other seeds."""
    try:
        for lr in RATES:
            _run_once(rows, name, model, way, lr, 0)
    except ValueError as error:  # a method that cannot be as small as `cce`
        print(name, model, way, error, flush=True)
        return
    found = {each["lr"]: each for each in read_records() if _key(each)[:3] == (name, model, way) and each["seed"] == 0}
    best = min(found.values(), key=lambda each: each["validation"])["lr"]
    for seed in range(1, seeds):
        _run_once(rows, name, model, way, best, seed)


def _run_once(rows: Rows, name: str, model: str, way: str, lr: float, seed: int) -> None:
    records = read_records()
    if any(_key(each) == (name, model, way, lr, seed) for each in records):
        return
    ours = [each for each in records if _key(each)[:3] == (name, model, "cce")]
    served = min(ours, key=lambda each: each["validation"])["served"] if ours else 0
    torch.manual_seed(seed)
    built = MODELS[model](rows.sizes, rows.dense.shape[1])
    started = time.process_time()
    found = WAYS[way](Job(rows, built, lr, SETS[name][0], served))
    seconds = time.process_time() - started
    record = {"set": name, "model": model, "way": way, "lr": lr, "seed": seed, "cpu_seconds": round(seconds, 1)}
    record |= {"test": score(built, rows, "test"), "served": cce.summary(built).nbytes} | found
    record |= {"commit": _commit(), "machine": machine()}
    RECORDS.parent.mkdir(parents=True, exist_ok=True)
    with RECORDS.open("a") as file:
        file.write(json.dumps(record) + "\n")
    shown = ("set", "model", "way", "lr", "seed", "validation", "test", "served", "cpu_seconds")
    print(*(f"{record[each]:.4f}" if each in ("validation", "test") else record[each] for each in shown), flush=True)


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[each] for each in ("set", "model", "way", "lr", "seed"))


def read_records() -> list[dict[str, Any]]:
    """The runs so far."""
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def chosen(records: list[dict[str, Any]]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """The runs of each set, model and way with the rate that validated best for seed 0."""
    best: dict[tuple[str, str, str], dict[str, Any]] = {}
    for each in records:
        key = _key(each)[:3]
        if each["seed"] == 0 and (key not in best or each["validation"] < best[key]["validation"]):
            best[key] = each
    return {key: [e for e in records if _key(e)[:3] == key and e["lr"] == best[key]["lr"]] for key in best}


def average(runs: list[dict[str, Any]], figure: str) -> float:
    """The mean over seeds."""
    return mean(float(each[figure]) for each in runs)


# -- tables ------------------------------------------------------------------------------------------------------------

NAMES = {
    "ml1m": "MovieLens 1M",
    "anime": "Anime",
    "bookcrossing": "Book-Crossing",
    "criteo_dac80k": "80,000 rows like Criteo's",
    "debian_deps": "Debian dependencies",
    "tennis": "Tennis, by time",
    "grocery_repeat": "Grocery, by time",
    "movietweetings": "MovieTweetings, by time",
}
TITLES = {
    "full": "full",
    "full-sparse": "full, SparseAdam",
    "full-merged": "full, rare ids merged",
    "int8-after": "full, then int8",
    "pq": "full, then `pq`",
    "cce": "`cce`",
    "cce-min-count-2": "`cce`, `min_count=2`",
    "hash": "`hash`",
    "ce-concat": "`ce-concat`",
    "mixed-dim": "`mixed-dim`",
    "cce-paper": "`cce-paper`",
}


def summary_table(records: list[dict[str, Any]], model: str) -> str:
    """`cce` beside the full table, a line for each set."""
    runs = chosen(records)
    lines = [
        "| test BCE, DeepFM, 3 seeds | full table | `cce` | served, full | served, `cce` | in training | CPU time |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, title in NAMES.items():
        full_runs, ours = runs.get((name, model, "full")), runs.get((name, model, "cce"))
        if not full_runs or not ours:
            continue
        scores = average(full_runs, "test"), average(ours, "test")
        cells = [f"**{each:.4f}**" if round(each, 4) == round(min(scores), 4) else f"{each:.4f}" for each in scores]
        served = [average(each, "served") for each in (full_runs, ours)]
        held, seconds = (average(full_runs, each) / average(ours, each) for each in ("held", "cpu_seconds"))
        sizes = f"{served[0] / 1e6:.2f} MB | {served[1] / 1e3:.0f} kB, {served[0] / served[1]:.0f}×"
        lines.append(f"| {title} | {cells[0]} | {cells[1]} | {sizes} | {held:.0f}× less | {1 / seconds:.1f}× |")
    return "\n".join(lines)


def all_tables(records: list[dict[str, Any]]) -> str:
    """All ways: test BCE and bytes, a table for each model."""
    runs, found = chosen(records), []
    for model, title in (("deepfm", "DeepFM"), ("dlrm", "DLRM")):
        ways = [way for way in TITLES if any(key[1:] == (model, way) for key in runs)]
        if not ways:
            continue
        lines = [f"| {title} | {' | '.join(TITLES[way] for way in ways)} |", "|---|" + "--:|" * len(ways)]
        for name, set_title in NAMES.items():
            cells = []
            for way in ways:
                own = runs.get((name, model, way))
                cells.append("" if not own else f"{average(own, 'test'):.4f}, {average(own, 'served') / 1e3:,.0f} kB")
            if any(cells):
                lines.append(f"| {set_title} | {' | '.join(cells)} |")
        found.append("\n".join(lines))
    return "\n\n".join(found)


def with_tables(text: str, table: str) -> str:
    """A page with its table between the two marks."""
    begin, end = "<!-- real_sets: begin -->", "<!-- real_sets: end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"


PAGES: dict[Path, Callable[[list[dict[str, Any]]], str]] = {
    Path("README.md"): lambda records: summary_table(records, "deepfm"),
    Path("docs/results.md"): all_tables,
}


def write_tables(options: argparse.Namespace) -> None:
    """Write the tables of README.md and docs/results.md."""
    del options
    for page, table in PAGES.items():
        page.write_text(with_tables(page.read_text(), table(read_records())))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("--data", type=Path, default=Path(os.environ.get("CCE_DATA", "../shared/data")))
    runs.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    runs.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    runs.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    runs.add_argument("--seeds", type=int, default=3)
    runs.set_defaults(run=run)
    verbs.add_parser("table").set_defaults(run=write_tables)
    options = parser.parse_args(argv)
    options.run(options)


if __name__ == "__main__":
    main()
