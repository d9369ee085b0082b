"""`[tune]` of a recipe: what is tried for each series before the sweep. Plain values; no torch here.

[tune]
lr = [0.005, 0.01, 0.02]                # an option that is left out is not tuned
weight_decay = [0.0, 1e-5]
start_scale = ["uniform", "dlrm"]
caps = [2000, 32000]                    # budgets to tune at; default: the middle one of each series
seeds = [0]
epochs = [2, 8]                         # short runs first; default: a quarter of the recipe's epochs, then all
factor = 3                              # one in so many continues with the longer runs

[tune.series."cce"]                     # other values for a series
lr = [0.01, 0.02, 0.04]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from cce.checks import START_SCALES, check_number, check_range, check_start_scale

AXES = ("lr", "weight_decay", "start_scale")


@dataclass(frozen=True)
class TuneGrid:
    """The values of each option to try, and how. An empty tuple stands for the default."""

    lr: tuple[float, ...] = ()
    weight_decay: tuple[float, ...] = ()
    start_scale: tuple[str | float, ...] = ()
    caps: tuple[int, ...] = ()
    seeds: tuple[int, ...] = (0,)
    epochs: tuple[int, ...] = ()
    factor: int = 3
    series: dict[str, dict[str, Any]] = field(default_factory=dict)

    def of_series(self, name: str) -> TuneGrid:
        """The grid with the values that a series has of its own."""
        return replace(self, series={}, **self.series.get(name, {}))

    def axes(self, own: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
        """The values to try of each option; what a series sets itself (`own`) is not tuned."""
        return {name: values for name in AXES if name not in own and (values := getattr(self, name))}

    def rungs(self, epochs: int) -> tuple[int, ...]:
        """The epochs of the short runs, of the longer ones, and so on, for runs of `epochs`."""
        wanted = self.epochs or (max(1, epochs // 4), epochs)
        return tuple(dict.fromkeys(min(each, epochs) for each in wanted))


def make_grid(values: dict[str, Any], where: str) -> TuneGrid:
    """The grid of a recipe's `[tune]`, whose names and values are checked."""
    series = values.get("series", {})
    if not isinstance(series, dict) or not all(isinstance(own, dict) for own in series.values()):
        raise TypeError(f"{where} series must be tables of names and values, got {series!r:.80}.")
    plain = {name: value for name, value in values.items() if name != "series"}
    by_series = {name: _checked(own, f'{where} [tune.series."{name}"]') for name, own in series.items()}
    return TuneGrid(**_checked(plain, f"{where} [tune]"), series=by_series)


def _checked(values: dict[str, Any], where: str) -> dict[str, Any]:
    known = [each.name for each in fields(TuneGrid) if each.name != "series"]
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"{where} may have {', '.join(known)}; got {name!r}.")
        if name == "factor":
            check_range(f"{where} factor", value, 2, 2**31)
            found[name] = value
        else:
            found[name] = _list(f"{where} {name}", name, value)
    return found


def _list(where: str, name: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list) or not values:
        raise TypeError(f"{where} must be a list of at least one value, got {values!r}.")
    for value in values:
        if name == "start_scale":
            check_start_scale(where, value, ("auto", *START_SCALES))
        elif name in AXES:
            check_number(where, value)
        else:
            check_range(where, value, int(name != "seeds"), 2**63)
    if len(set(values)) < len(values) or (name == "epochs" and values != sorted(values)):
        raise ValueError(f"{where} must be distinct values{', rising' if name == 'epochs' else ''}, got {values!r}.")
    return tuple(values)
