"""What a run will cost: a few real steps, of which nothing is saved."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cce.diagnostics import summary
from cce.distributed import pack
from cce.reclustering import Refit
from cce.training.codes import cluster_codes
from cce.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np

    from cce.footprint import Footprint
    from cce.reclustering import ClusterSchedule, Rows
    from cce.schema import Batch
    from cce.training.config import TrainConfig

WARM_UP = 3  # steps that are not timed: loops are compiled, and memory is allocated
LONG = 10.0  # seconds: what takes as long is not timed again
REFITTED_ROWS = 20_000  # that a refit is timed on


@dataclass(frozen=True)
class Trial:
    """What was measured."""

    trained_per_second: float  # rows; inf for a run of no epochs, which trains none
    scored_per_second: float
    checkpoint_nbytes: int  # model, optimizer and all the rest
    tables: Footprint  # all of them together
    num_clusterings: int = 0  # of the whole run on these rows
    cluster_seconds: float = 0.0  # of one of them, of all tables
    num_refits: int = 0  # rounds
    refitted_per_second: float = inf  # rows of one round


def try_out(config: TrainConfig, *, seconds: float = 0.5) -> Trial:
    """Train for about `seconds`, score one batch, and measure a checkpoint. `start_from` is ignored."""
    with TemporaryDirectory() as folder:
        trainer = Trainer(replace(config, start_from=None, epochs=max(config.epochs, 1)), folder)
        session = trainer.session
        trained = _trained_per_second(trainer, seconds) if config.epochs else inf
        nbytes, num_clusterings = _checkpoint_nbytes(trainer), _num_clusterings(trainer) if config.epochs else 0
        clustering = _cluster_seconds(session.schedule) if session.schedule is not None and num_clusterings else 0.0
        if session.is_coded:
            num_clusterings, clustering = 1, _timed(lambda: cluster_codes(session))
        scored, tables = _scored_per_second(trainer), summary(session.model).total
        num_refits = session.config.refits or 0
        refitted = _refitted_per_second(trainer) if session.refit is not None else inf
        trainer.close()
    return Trial(trained, scored, nbytes, tables, num_clusterings, clustering, num_refits, refitted)


def _trained_per_second(trainer: Trainer, seconds: float) -> float:
    """Rows trained per second after the first steps, or in all steps of a short epoch."""
    batches, clock = trainer.session.batches(), trainer.session.stopwatch.seconds
    first = _train(trainer, islice(batches, WARM_UP), float("inf"))
    warm_up = clock["train"]
    rows = _train(trainer, batches, warm_up + seconds)
    return rows / (clock["train"] - warm_up) if rows else first / warm_up


def _train(trainer: Trainer, batches: Iterable[tuple[list[Batch], int]], until: float) -> int:
    """Train until the training clock reads `until`; return the number of rows."""
    rows = 0
    for pieces, num_rows in batches:
        trainer.train_step(pieces, num_rows)
        rows += num_rows
        if trainer.session.stopwatch.seconds["train"] > until:
            break
    return rows


def _num_clusterings(trainer: Trainer) -> int:
    """How often tables are clustered before the last batch."""
    schedule, last = trainer.session.schedule, trainer.session.total_steps - 1
    if schedule is None or not schedule.tables():
        return 0
    if schedule.steps is not None:
        return sum(step <= last for step in schedule.steps)
    assert schedule.every is not None
    return last // schedule.every


def _cluster_seconds(schedule: ClusterSchedule) -> float:
    """The seconds of a clustering of all tables; the first may have compiled loops, so a short one is done again."""
    first = _timed(schedule.cluster)
    return first if first > LONG or not schedule.tables() else min(first, _timed(schedule.cluster))


def _refitted_per_second(trainer: Trainer) -> float:
    """Rows of a round of refits per second, by rounds on the first rows."""
    session = trainer.session
    assert session.refit is not None
    rows = _FirstRows(trainer.data.rows("train"))
    refit = Refit(
        session.model,
        rows,
        folds=session.refit.folds,
        spare_fold=session.refit.spare_fold,
        max_nbytes=session.refit.max_nbytes,
    )
    generator = torch.Generator().manual_seed(0)
    passed = [_timed(lambda: refit.round(use_all_rows=True, generator=generator)) for _ in range(2)]
    return len(rows) / min(passed)


@dataclass(frozen=True)
class _FirstRows:
    """The first of all rows, as a refit wants them."""

    rows: Rows

    def __len__(self) -> int:
        return min(len(self.rows), REFITTED_ROWS)

    def fetch(self, numbers: np.ndarray) -> Batch:
        return self.rows.fetch(numbers)


def _scored_per_second(trainer: Trainer) -> float:
    config, session = trainer.config, trainer.session
    split = "validation" if trainer.validated_at else "train"
    batch = next(iter(trainer.data.loader(split, batch_size=config.evaluation_batch_size, shuffle=False)))
    with torch.no_grad():
        passed = [_timed(lambda: session.model(batch.to(session.device))) for _ in range(2)]
    return len(batch.labels) / min(passed)


def _checkpoint_nbytes(trainer: Trainer) -> int:
    tensors: dict[str, Tensor] = {}
    pack(trainer.session.state_dict(), tensors)
    return sum(tensor.nbytes for tensor in (*trainer.session.model.state_dict().values(), *tensors.values()))


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
