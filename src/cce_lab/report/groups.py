"""Folders → records → groups that may be compared (data set, model, epochs) → series → budgets with seeds.

A folder is walked for `records.jsonl` (of a sweep), `record.jsonl` (of a run) and `recipe.toml`. A run that is found
twice is taken once; runs that are not finished are counted.
"""

import math
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cce.evaluation import DEFAULT_METRICS, Better, MetricInfo, describe_metric
from cce.files import read_text
from cce.footprint import Footprints
from cce.records import RunRecord, read_records
from cce.run_folder import CONFIG, RECIPE, RECORD, RECORDS, TRIALS
from cce_lab.report.factors import Factor, Kind, Spread, factor_over_seeds, spread

SOURCE_EPOCHS = "source_epochs"  # beside a run's options: those of the run that it started from
SOURCE_TRAINING = "source_training_nbytes"  # the same: bytes that it held in training
FULL = "full"
NOT_SCORES = ("kind", "step", "epoch", "best_step")  # of a validation
WORDS = {  # of each measure of size
    "training": "training bytes",
    "bytes": "served bytes",
    "params": "params",
    "largest": "params of the largest table",
}
SKIPPED = ("checkpoints", "tensorboard", "report", TRIALS)  # folders that hold no runs, or none to compare
Key = tuple[str, str, int]  # data set, model, epochs


@dataclass(frozen=True)
class Budget:
    """Runs of one series under one budget: they differ in their seeds only."""

    series: str
    label: str  # "cap 8,000"
    records: tuple[RunRecord, ...]

    @property
    def first(self) -> RunRecord:
        """The run that stands for all: the one of the lowest seed."""
        return self.records[0]

    def size(self, measure: str) -> float | None:
        """Its size by a measure of `WORDS`, the mean over seeds; None where records have no memory summary."""
        found = spread(size for record in self.records if (size := size_of(record, measure)) is not None)
        return None if found is None else found.mean

    def over_seeds(self, metric: str) -> Spread | None:
        return spread(record.scores.get(metric, math.nan) for record in self.records)

    def by_seed(self, metric: str) -> dict[int, float]:
        """The score of each seed; NaN where it has none. Of several runs of a seed the mean."""
        found = {}
        for seed in dict.fromkeys(record.seed for record in self.records):
            scores = spread(record.scores.get(metric, math.nan) for record in self.records if record.seed == seed)
            found[seed] = math.nan if scores is None else scores.mean
        return found


@dataclass(frozen=True)
class Group:
    """What may be compared."""

    key: Key
    budgets: tuple[Budget, ...]  # by series, then by size

    @property
    def title(self) -> str:
        data, model, epochs = self.key
        return f"{data}, {Path(model).name}, {epochs} epoch{'' if epochs == 1 else 's'}"

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    @cached_property
    def records(self) -> list[RunRecord]:
        return [record for budget in self.budgets for record in budget.records]

    @cached_property
    def series(self) -> dict[str, list[Budget]]:
        """The budgets of each series, by size."""
        found: dict[str, list[Budget]] = {}
        for budget in self.budgets:
            found.setdefault(budget.series, []).append(budget)
        return found

    @cached_property
    def baseline(self) -> Budget | None:
        """The full tables, of which a group may have none: the series of that name or, of several others, the best."""
        full = [budget for budget in self.budgets if budget.first.method == FULL]
        named = [budget for budget in full if budget.series == FULL]
        return min(named or full, key=self.mean_loss, default=None)

    def mean_loss(self, budget: Budget) -> float:
        """The mean over seeds of the leading score, as a loss; infinite without one."""
        found = budget.over_seeds(self.leading.name)
        return math.inf if found is None else self.leading.loss(found.mean)

    @property
    def full_series(self) -> str | None:
        """The series of the full tables that the others are compared with."""
        return self.baseline.series if self.baseline else None

    @cached_property
    def metrics(self) -> list[MetricInfo]:
        """Everything that runs were scored by, the leading metric first."""
        infos = [describe_metric(name) for name in self._metric_names]
        return sorted(infos, key=lambda info: info.name != self.leading.name)

    @cached_property
    def leading(self) -> MetricInfo:
        """The metric that most runs were stopped by, if it has a direction; it decides compression factors."""
        wanted = Counter((run.config.get("metrics") or DEFAULT_METRICS)[0] for run in self.records).most_common()
        tested = {name for record in self.records for name in record.scores}
        known = [name for name in self._metric_names if name in tested] or self._metric_names
        names = [*(name for name, _ in wanted if name in known), *known, *DEFAULT_METRICS]
        infos = [describe_metric(name) for name in names]
        return next(info for info in infos if info.better is not Better.UNKNOWN)

    @cached_property
    def _metric_names(self) -> list[str]:
        found = [*(run.scores for run in self.records), *(line for run in self.records for line in run.curve)]
        return [name for name in dict.fromkeys(name for scores in found for name in scores) if name not in NOT_SCORES]

    @property
    def baseline_score(self) -> float | None:
        """The mean score of the full tables, by the leading metric."""
        found = self.baseline.over_seeds(self.leading.name) if self.baseline else None
        return None if found is None else found.mean

    def against_full(self, budget: Budget) -> list[float]:
        """By seed, the leading score less that of the full table of the same seed, or of their mean."""
        if self.baseline is None or self.baseline_score is None:
            return []
        scores = self.baseline.by_seed(self.leading.name)
        full = {seed: score for seed, score in scores.items() if math.isfinite(score)}
        own = budget.by_seed(self.leading.name)
        found = [score - full.get(seed, self.baseline_score) for seed, score in own.items()]
        return [difference for difference in found if math.isfinite(difference)]

    @property
    def lead(self) -> str:
        """The measure that leads: bytes held in training, or bytes served where records have no memory summary."""
        return "training" if self.full_size("training") else "bytes"

    def full_size(self, measure: str) -> float | None:
        """The size of the full tables: of the baseline, or from the memory summaries."""
        if self.baseline is not None and (size := self.baseline.size(measure)) is not None:
            return size
        sizes = (full_size_of(record, measure) for record in self.records)
        return next((size for size in sizes if size is not None), None)

    def factor(self, series: str, measure: str) -> Factor:
        """The compression factor of a series."""
        full_size, loss = self.full_size(measure), self.leading.loss
        if self.baseline is None or self.baseline_score is None:
            return Factor(Kind.UNKNOWN, notes=("there is no full table to compare with",))
        curves: dict[int, list[tuple[float, float]]] = {}
        for budget in self.series[series]:
            if (size := budget.size(measure)) is not None:
                for seed, score in budget.by_seed(self.leading.name).items():
                    curves.setdefault(seed, []).append((size, loss(score)))
        if full_size is None or not curves:
            return Factor(Kind.UNKNOWN, notes=("the records have no memory summary of tables",))
        full = self.baseline.by_seed(self.leading.name)
        return factor_over_seeds(curves, {seed: loss(score) for seed, score in full.items()}, full_size)


def group_records(records: Iterable[RunRecord]) -> list[Group]:
    """Groups by name, each with its series; the full table comes first, the rest by name."""
    found: dict[Key, dict[tuple[str, str], list[RunRecord]]] = {}
    for record in records:
        budgets = found.setdefault(key_of(record.config), {})
        budgets.setdefault((record.series or record.method, budget_words(record)), []).append(record)
    groups = []
    for key, budgets in sorted(found.items()):
        mine = [
            Budget(series, label, tuple(sorted(runs, key=lambda record: record.seed)))
            for (series, label), runs in budgets.items()
        ]
        mine.sort(key=lambda budget: (budget.first.method != FULL, budget.series, budget.size("params") or 0))
        groups.append(Group(key, tuple(mine)))
    return groups


def with_sources(records: Sequence[RunRecord], epochs: int | None = None) -> list[RunRecord]:
    """The runs of one sweep; one that starts from another takes over its epochs and its bytes in training.

    So the two can be compared: product quantisation of a trained table needs as much memory as that table did. With the
    `epochs` of a recipe, series whose epochs are their own are compared with the others too.
    """
    common = {SOURCE_EPOCHS: epochs} if epochs else {}
    known = {
        record.name: {SOURCE_EPOCHS: record.config.get("epochs"), SOURCE_TRAINING: record.training_nbytes}
        for record in records
    }
    return [
        replace(record, config=record.config | known.get(Path(str(record.config.get("start_from"))).name, {}) | common)
        for record in records
    ]


def key_of(config: dict[str, Any]) -> Key:
    """What runs must have in common to be compared."""
    data = Path(str(config.get("data") or "unknown data")).name
    epochs = int(config.get(SOURCE_EPOCHS) or config.get("epochs") or 0)
    return data, str(config.get("model") or "unknown model"), epochs


def budget_words(record: RunRecord) -> str:
    """The budget in words; for records without one, their number of parameters."""
    if record.method == FULL:
        return FULL
    words = {"cap": "cap {:,}", "num_params": "{:,} params", "nbytes": "{:,} bytes", "compression": "{:,g}×"}
    words |= {"bits": "{:g} bits per id", "tolerance": "tolerance {:g}"}
    for name, word in words.items():
        if record.config.get(name) is not None:
            return word.format(record.config[name])
    return f"{record.num_params:,} params"


def size_of(record: RunRecord, measure: str) -> float | None:
    """Bytes held in training, bytes served, or parameters, of all tables or of the largest."""
    if measure == "training":
        own, source = record.training_nbytes, record.config.get(SOURCE_TRAINING)
        return own if own is None or source is None else max(own, source)  # who starts from a table held it once
    if measure == "params":
        return record.num_params
    if measure == "bytes":
        return record.nbytes
    return Footprints(record.tables).largest.num_params if record.tables else None


def full_size_of(record: RunRecord, measure: str) -> float | None:
    """The same for the full tables that a record's tables stand for; None where that is not known."""
    if not record.tables or measure == "training":
        return None
    tables = Footprints(record.tables)
    if measure == "bytes":
        return tables.total.full_nbytes
    return (tables.largest if measure == "largest" else tables.total).full_params


@dataclass
class Collected:
    """Everything that was found."""

    records: list[RunRecord] = field(default_factory=list)
    recipes: dict[str, str] = field(default_factory=dict)  # path → text
    expected: dict[Key, dict[str, Any]] = field(default_factory=dict)  # what the recipe of a group expects
    notes: list[str] = field(default_factory=list)


def collect(paths: Sequence[Path]) -> Collected:
    """Read everything at `paths`; reject a missing path, and paths without a finished run."""
    found = Collected()
    records: dict[tuple[Any, ...], RunRecord] = {}
    recorded: set[Path] = set()  # folders of runs that have a record
    begun: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there: give files of records, or folders of runs.")
        for file in _files(path):
            if file.name == RECIPE:
                found.recipes[str(file)] = read_text(file)
            elif file.name == CONFIG:
                begun.add(file.parent)
            else:
                for record in _read(file, found):
                    recorded |= {file.parent, file.parent / "runs" / record.name}
                    same = (record.method, record.seed, record.num_params, record.nbytes, record.seconds)
                    key = (*same, str(record.scores))
                    if key not in records or (record.series and not records[key].series):
                        records[key] = record
    found.records = list(records.values())
    unfinished = len(begun - recorded)
    left_out = f"{unfinished} run{'' if unfinished == 1 else 's'} not finished" if unfinished else ""
    if not found.records:
        raise ValueError(f"there are no finished runs in {', '.join(map(str, paths))}{left_out and f'; {left_out}'}.")
    if left_out:
        found.notes.append(f"{left_out}, and left out.")
    return found


def _files(path: Path) -> Iterator[Path]:
    """The files worth reading, in a fixed order."""
    if path.is_file():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        yield from (Path(folder) / name for name in (RECIPE, RECORDS, RECORD, CONFIG) if name in names)


def _read(file: Path, found: Collected) -> list[RunRecord]:
    """The records of a file, with names; what its recipe expects is added to `found`."""
    plan = _plan_of(file, found)
    train = plan.get("train")
    records = with_sources(read_records(file), train.get("epochs") if isinstance(train, dict) else None)
    if file.name == RECORD:
        records = [record if record.name else replace(record, name=file.parent.name) for record in records]
    if isinstance(expected := plan.get("expected"), dict):
        found.expected |= {key_of(record.config): expected for record in records}
    return records


def _plan_of(file: Path, found: Collected) -> dict[str, Any]:
    """The recipe in the nearest folder above a file; empty without one that is TOML."""
    paths = (str(parent / RECIPE) for parent in file.parents)
    recipe = next((path for path in paths if path in found.recipes), None)
    if recipe is None:
        return {}
    try:
        return tomllib.loads(found.recipes[recipe])
    except tomllib.TOMLDecodeError:
        if (note := f"{recipe} cannot be read as TOML.") not in found.notes:
            found.notes.append(note)
        return {}
