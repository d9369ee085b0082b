"""Tiny sweeps for tests of experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.data import PreparedData
from cce_lab.sweeps.recipe import make_recipe
from cce_lab.sweeps.runs import list_runs
from helpers.runs import OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from cce_lab.sweeps.runs import Run

TRAIN = {name: value for name, value in OPTIONS.items() if name not in ("cap", "method", "threads")}
PQ = {"method": "pq", "start_from": "full", "epochs": 0}
# what another run may have otherwise
CLOCK = ("seconds", "samples_per_second", "seconds_by_part", "peak_nbytes", "environment")


def tiny_values(**changes: Any) -> dict[str, Any]:
    """A recipe of 3 runs a seed: full tables, CCE, and PQ of the full tables. 13 steps an epoch, 2 epochs."""
    sweep = {"methods": ["full"], "caps": [320], "seeds": [0]}
    return {"train": TRAIN, "sweep": sweep, "series": {"cce": {"method": "cce-paper"}, "pq": PQ}} | changes


def tiny_runs(data: Path, **changes: Any) -> list[Run]:
    """The runs of that recipe."""
    vocabularies = PreparedData.open(data).schema.vocabulary_sizes
    return list_runs(make_recipe("tiny", tiny_values(**changes)), data, vocabularies)


def essence(record: Any) -> dict[str, Any]:
    """What must be the same however often a sweep was disturbed."""
    values = {name: value for name, value in vars(record).items() if name not in CLOCK}
    for name in ("config", "resolved"):
        values[name] = {k: v for k, v in values[name].items() if k not in ("start_from", "threads")}
    values["events"] = [{k: v for k, v in event.items() if k != "seconds"} for event in values["events"]]
    return values
