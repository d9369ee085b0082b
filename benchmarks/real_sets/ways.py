"""Ways to train the same model: full tables, `cce` by the README's lines, `cce train`, and rivals in equal bytes."""

import copy
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

import cce
from benchmarks.real_sets.data import Rows
from benchmarks.real_sets.models import DIM, HIDDEN
from cce.run_folder import RunFolder

BATCH, VALIDATIONS = 2048, 3
SCORED = 8192  # rows at a time: few, so that memory is mostly that of training
LARGE = 20_000  # values of a table that is worth compressing: the default of `cce.compress`


class Job(NamedTuple):
    """What a way of making tables gets."""

    rows: Rows
    model: nn.Module
    lr: float
    epochs: int
    served: int  # bytes of the tables that `cce` serves, which rivals may have as well; 0 if not known yet
    seed: int


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
        for some in rows.parts[part].split(SCORED)
    ]
    model.train()
    return sum(losses) / len(rows.parts[part])


def full(job: Job) -> dict[str, Any]:
    optimizer = torch.optim.Adam(job.model.parameters(), lr=job.lr)
    validation = fit(job, optimizer)
    return {"validation": validation, "held": held_in_training(job.model, optimizer)}


def none(job: Job) -> dict[str, Any]:
    """No tables: all ids of a feature have one vector. What other ways take more memory than this, their tables do."""
    for index in range(len(job.rows.sizes)):
        job.model.embedding.tables[index] = _OneVector()
    return full(job)


class _OneVector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(DIM))

    def forward(self, ids: Tensor) -> Tensor:
        return self.weight.expand(len(ids), DIM)


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
    """Product quantisation of full tables after their training, in the bytes of `cce`, as `cce` quantises its rows:
    weighted by counts, and bytes are shared among tables by how much validation minds.
    """
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
    validate = partial(score, job.model, job.rows, "validation")
    cce.finalize(job.model, nbytes=max(job.served - small, 1), counts=counts, validate=validate)
    return found | {"validation": validate()}


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
    schedule = cce.reclustering.ClusterSchedule(job.model, optimizer, at_epochs=at_epochs, steps_per_epoch=steps)
    return {"validation": fit(job, optimizer, schedule.step), "held": held_in_training(job.model, optimizer)}


def trainer(job: Job) -> dict[str, Any]:
    """`cce prepare` and `cce train` on the same rows, with a DeepFM of the same size and no refits."""
    from pyarrow import parquet, table

    num_dense = job.rows.dense.shape[1]
    columns = {f"c{index}": column.numpy() for index, column in enumerate(job.rows.ids.unbind(1))}
    columns |= {f"d{index}": column.numpy() for index, column in enumerate(job.rows.dense.unbind(1))}
    rows = table(columns | {"label": job.rows.labels.numpy()})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "raw").mkdir()
        for part, own in job.rows.parts.items():
            parquet.write_table(rows.take(own.numpy()), Path(folder) / "raw" / f"{part}.parquet")
        words = ["--split", "files", "--label", "label"]
        words += ["--categorical", *(name for name in columns if name[0] == "c")]
        if num_dense:
            words += ["--dense", *(f"d{index}:identity" for index in range(num_dense))]
        _cce("prepare", "table", f"{folder}/raw", f"{folder}/data", *words)
        options = ["--model", "deepfm", "--model-options", f"hidden={list(HIDDEN)}", "--lr", str(job.lr)]
        options += ["--batch-size", str(BATCH), "--epochs", str(job.epochs), "--seed", str(job.seed), "--refits", "0"]
        options += ["--set", f"validations_per_epoch={VALIDATIONS}", "early_stopping=false", "threads=1"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        _cce("train", f"{folder}/data", *options, "--out", f"{folder}/run")
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        record = RunFolder(Path(folder) / "run").read_record()
    return {
        "validation": min(each["bce"] for each in record.curve),
        "test": record.scores["bce"],
        "held": record.training_nbytes,
        "served": record.nbytes,
        "cpu_seconds": seconds,
    }


def _cce(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "cce", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"cce {' '.join(words)}: {done.stderr[-2000:]}")


def held_in_training(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of tables, of their gradients and of optimizer state, computed."""
    return sum(table.training_nbytes for table in cce.summary(model, optimizer).tables)


WAYS: dict[str, Callable[[Job], dict[str, Any]]] = {
    "none": none,
    "full": full,
    "cce": cce_default,
    "cce-train": trainer,
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
