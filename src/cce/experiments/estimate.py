"""What a sweep will cost, before it is run: tables are really made, and a few steps really taken."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from cce.data import PreparedData
from cce.text import format_bytes, format_ratio, format_table
from cce.training import Trial, try_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cce.experiments.runs import Run
    from cce.experiments.sweep import Sweep

HEADERS = ("series", "cap", "params", "fewer", "bytes", "fewer", "runs", "rows each", "about, each")
NOTE = "With clusterings and refits, without quantisations, and as if no run stopped early."
FROM_FIRST_ROWS = (
    "The data is not prepared yet: this is from the first rows of the raw files, which have about {:.1f} times as many "
    "rows. Vocabularies, and full tables with them, will be larger."
)


@dataclass(frozen=True)
class FirstRows:
    """Prepared data of the first rows only, of which the raw files have `factor` times as many."""

    path: Path
    factor: float


@dataclass(frozen=True)
class Point:
    """The runs of one series and budget."""

    series: str
    cap: int | None
    num_params: int
    compression: float  # times fewer parameters than full tables have
    nbytes: int
    byte_compression: float
    num_runs: int  # that are left
    num_rows: int  # that each trains on
    seconds: float  # that each takes
    checkpoint_nbytes: int  # of one checkpoint


@dataclass(frozen=True)
class Estimate:
    """What is left of a sweep, and what it will take."""

    points: list[Point]
    num_runs: int
    num_finished: int
    jobs: int
    seconds: float  # with so many jobs
    disk_nbytes: int  # of checkpoints, at most at a time
    factor: float | None = None  # total rows per row read; None: all rows were read

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [format_table(HEADERS, [_row(point) for point in self.points])] if self.points else []
        finished = f", {self.num_finished} of them finished" if self.num_finished else ""
        alone = sum(point.seconds * point.num_runs for point in self.points)
        times = f"about {format_seconds(alone)} one after the other, {format_seconds(self.seconds)} by {self.jobs} jobs"
        lines.append(f"{self.num_runs} runs{finished}; {times}. {NOTE}")
        lines.append(f"checkpoints: up to {format_bytes(self.disk_nbytes)} at a time")
        if self.factor is not None and self.factor > 1:
            lines.append(FROM_FIRST_ROWS.format(self.factor))
        return "\n".join(lines)


def estimate_cost(
    sweep: Sweep,
    *,
    jobs: int,
    threads: int,
    first_rows: FirstRows | None = None,
    seconds: float = 0.5,
    progress: bool = False,
) -> Estimate:
    """Try every series and budget that is left for about so many seconds. Nothing is written."""
    left = sweep.left()
    groups: dict[tuple[str, int | None], list[Run]] = {}
    for run in left:
        groups.setdefault((run.series, run.config.cap), []).append(run)
    bar = tqdm(groups.values(), desc="a few steps of each", unit="series", disable=None if progress else True)
    points = [_point(runs, threads, seconds, first_rows) for runs in bar]
    return Estimate(
        points=points,
        num_runs=len(sweep.chosen),
        num_finished=len(sweep.chosen) - len(left),
        jobs=jobs,
        seconds=_makespan([point.seconds for point in points for _ in range(point.num_runs)], jobs),
        disk_nbytes=_disk(points, groups, sweep.sources, jobs),
        factor=first_rows.factor if first_rows else None,
    )


def _point(runs: Sequence[Run], threads: int, seconds: float, first_rows: FirstRows | None) -> Point:
    run = runs[0]
    config = replace(run.config, threads=run.config.threads or threads)
    if first_rows is not None:
        config = replace(config, data=str(first_rows.path))
    trial = try_out(config, seconds=seconds)
    splits = _split_sizes(PreparedData.open(config.data), first_rows)
    num_rows = min(config.epochs * splits["train"], (config.max_steps or 2**63) * config.batch_size)
    return Point(
        series=run.series,
        cap=config.cap,
        num_params=trial.tables.num_params,
        compression=trial.tables.compression,
        nbytes=trial.tables.nbytes,
        byte_compression=trial.tables.byte_compression,
        num_runs=len(runs),
        num_rows=num_rows,
        seconds=_seconds(run, splits, num_rows, trial),
        checkpoint_nbytes=trial.checkpoint_nbytes,
    )


def _split_sizes(data: PreparedData, first_rows: FirstRows | None) -> dict[str, int]:
    factor = first_rows.factor if first_rows else 1.0
    sizes = {split: data.num_rows(split) if split in data.splits else 0 for split in ("train", "validation", "test")}
    return {split: round(size * factor) for split, size in sizes.items()}


def _seconds(run: Run, splits: Mapping[str, int], num_rows: int, trial: Trial) -> float:
    """The seconds of training, clusterings, refits, validations and the test."""
    config = run.config
    num_validations = num_rows / splits["train"] * config.validations_per_epoch + trial.num_refits
    num_scored = num_validations * splits["validation"] + (splits["test"] if config.test else 0)
    num_refitted, between = trial.num_refits * splits["train"], max(trial.num_refits - 1, 0) * splits["train"] / 3
    trained = (num_rows + between) / trial.trained_per_second + num_refitted / trial.refitted_per_second
    return trained + num_scored / trial.scored_per_second + trial.num_clusterings * trial.cluster_seconds


def _makespan(seconds: Sequence[float], jobs: int) -> float:
    """Until the last is done, if each goes to the process that is free first."""
    free = [0.0] * jobs
    for each in seconds:
        free[free.index(min(free))] += each
    return max(free)


def _disk(points: list[Point], groups: Mapping[tuple[str, int | None], list[Run]], sources: set[str], jobs: int) -> int:
    """The largest runs side by side, each with its last checkpoints, the best and one being written; and sources."""
    weights: list[int] = []
    saved = 0
    for point, runs in zip(points, groups.values(), strict=True):
        num_checkpoints = runs[0].config.keep_last + 1
        weights += [point.checkpoint_nbytes * (num_checkpoints + 1)] * len(runs)
        saved += sum(run.name in sources for run in runs) * point.checkpoint_nbytes * num_checkpoints
    return saved + sum(sorted(weights)[-jobs:])


def _row(point: Point) -> tuple[str, ...]:
    return (
        point.series,
        "" if point.cap is None else f"{point.cap:,}",
        f"{point.num_params:,}",
        format_ratio(point.compression),
        format_bytes(point.nbytes),
        format_ratio(point.byte_compression),
        f"{point.num_runs}",
        f"{point.num_rows:,}",
        format_seconds(point.seconds),
    )


def format_seconds(seconds: float) -> str:
    """`4000` as `1 h 7 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 100 else f"{hours / 24:.0f} days"
