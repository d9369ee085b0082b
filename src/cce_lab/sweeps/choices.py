"""What `cce tune` chose: a file beside the sweep, with every trial, and checksums of what it was chosen for."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from cce.files import write_atomic
from cce.records import parse_strict_json, strict_json
from cce.run_folder import TUNED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from cce.data import PreparedData
    from cce_lab.sweeps.recipe import Recipe

VERSION = 1


@dataclass(frozen=True)
class Choice:
    """The options that one series runs with near one budget, and all that were tried for it."""

    series: str
    cap: int | None
    options: dict[str, Any]
    metric: str
    score: float  # the best validation, mean over seeds
    epochs: int  # of the runs that decided
    recipe: str  # checksum of what the recipe says about the series
    trials: list[dict[str, Any]]


@dataclass(frozen=True)
class Choices:
    """All choices of a recipe on one data set."""

    data: str  # its checksum
    choices: tuple[Choice, ...] = field(default=())

    def options_for(self, series: str, cap: int | None) -> dict[str, Any]:
        """The options chosen at the budget nearest by ratio; none for a series that is not tuned."""
        mine = [choice for choice in self.choices if choice.series == series]
        if not mine:
            return {}
        return min(mine, key=lambda choice: abs(math.log((choice.cap or 1) / (cap or 1)))).options

    def merged(self, new: Iterable[Choice]) -> Choices:
        """The same with the choices of these series replaced."""
        new = tuple(new)
        kept = [choice for choice in self.choices if choice.series not in {each.series for each in new}]
        return Choices(self.data, (*kept, *new))

    def check(self, recipe: Recipe, data: str, series: Iterable[str], where: Path) -> None:
        """Reject choices that were made for other data, for another recipe, or not at all."""
        if self.data != data:
            raise ValueError(f"{where} must be of this data set, got choices made on another: run `cce tune` again.")
        for name in series:
            mine = [choice for choice in self.choices if choice.series == name]
            if not mine:
                raise ValueError(f"{where} must have a choice for {name!r}, got none: run `cce tune` first.")
            if any(choice.recipe != recipe_checksum(recipe, name) for choice in mine):
                what = f"a choice for {name!r} made with another [train], [series] or [tune]"
                raise ValueError(f"{where} must be of this recipe, got {what}: run `cce tune` again.")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as for JSON."""
        return {"version": VERSION, "data": self.data, "choices": [asdict(choice) for choice in self.choices]}

    def write(self, out: Path) -> None:
        """Write the file of a sweep's folder, whole or not at all."""
        write_atomic(out / TUNED, json.dumps(json.loads(strict_json(self.to_dict())), indent=1) + "\n")

    @classmethod
    def read(cls, out: Path) -> Choices | None:
        """The choices in a sweep's folder; None if there are none. A damaged file is rejected."""
        path = out / TUNED
        if not path.exists():
            return None
        try:
            values = parse_strict_json(path.read_text(encoding="utf-8"))
            if values["version"] != VERSION:
                raise ValueError(f"version must be {VERSION}, got {values['version']!r}.")
            return cls(values["data"], tuple(Choice(**each) for each in values["choices"]))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} must be as `cce tune` wrote it: {error}") from error


def tuned_series(recipe: Recipe, only: Iterable[str] | None = None) -> list[str]:
    """The series that are tuned: all but those that start from another's run, which have nothing to choose."""
    every = recipe.all_series()
    wanted = list(every) if only is None else list(only)
    return [name for name in wanted if "start_from" not in every.get(name, {})]


def recipe_checksum(recipe: Recipe, series: str) -> str:
    """SHA-256 of all that a recipe says about how one series is trained and tuned; not of seeds and caps to sweep."""
    own = {name: value for name, value in recipe.all_series()[series].items() if name != "caps"}
    grid = asdict(recipe.grid.of_series(series))
    return _checksum({"train": recipe.train, "series": own, "tune": grid})


def data_checksum(data: PreparedData) -> str:
    """SHA-256 of the checksums of a data set's files and of its schema; its folder may be moved."""
    return _checksum({"files": data.manifest["files"], "schema": data.manifest["schema"]})


def _checksum(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
