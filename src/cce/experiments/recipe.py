"""A recipe: which runs make up an experiment, and what its paper found. TOML in, plain values out; no torch here.

about = "one line on what it shows"

[data]
name = "bookcrossing"                       # of the prepared folder
prepare = "table bookcrossing.parquet --label label --categorical c0 c1"     # words after `cce prepare`

[train]                                     # options of every run, as of `cce train`
model = "dlrm"
epochs = 10

[sweep]
methods = ["full", "hash", "cce"]           # each is a series of runs: a line of the plot
caps = [500, 8000]
seeds = [0, 1, 2]

[series."pq"]                               # more series, each with options of its own
method = "pq"
start_from = "full"                         # another series: the run of the same seed
epochs = 0

[expected]                                  # what the paper found
source = "Table 1"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cce.training.config import check_names

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ("about", "data", "train", "sweep", "series", "expected")
OF_DATA = ("name", "prepare")
OF_SWEEP = ("methods", "caps", "seeds")
SET_BY_SWEEP = ("data", "method", "cap", "num_params", "compression", "seed", "start_from")


@dataclass(frozen=True)
class Recipe:
    """What was read, and checked."""

    name: str
    about: str = ""
    data: dict[str, str] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    caps: tuple[int, ...] = ()
    seeds: tuple[int, ...] = (0,)
    series: dict[str, dict[str, Any]] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)

    def all_series(self) -> dict[str, dict[str, Any]]:
        """Every line of the plot, with the options that are its own."""
        return {method: {"method": method} for method in self.methods} | self.series


def read_recipe(path: Path) -> Recipe:
    """The recipe of a TOML file, whose names are checked."""
    if not path.is_file():
        raise FileNotFoundError(f"recipe must name a file that is there, got {str(path)!r}.")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} must be TOML: {error}.") from error
    return make_recipe(path.stem, values, where=str(path))


def make_recipe(name: str, values: dict[str, Any], *, where: str = "the recipe") -> Recipe:
    """The recipe of these values; what is not known is refused."""
    _check_keys(values, PARTS, where)
    data, sweep = values.get("data", {}), values.get("sweep", {})
    _check_keys(data, OF_DATA, f"{where} [data]")
    _check_keys(sweep, OF_SWEEP, f"{where} [sweep]")
    _check_train(values.get("train", {}), f"{where} [train]")
    recipe = Recipe(
        name=name,
        about=values.get("about", ""),
        data={"name": name} | data,
        train=values.get("train", {}),
        methods=tuple(sweep.get("methods", ())),
        caps=tuple(sweep.get("caps", ())),
        seeds=tuple(sweep.get("seeds", (0,))),
        series=values.get("series", {}),
        expected=values.get("expected", {}),
    )
    _check_series(recipe, where)
    return recipe


def _check_train(options: dict[str, Any], where: str) -> None:
    check_names(options, where)
    for name in SET_BY_SWEEP:
        if name in options:
            raise ValueError(f"{where} must leave {name} to the sweep and its series, got {name} = {options[name]!r}.")


def _check_series(recipe: Recipe, where: str) -> None:
    every = recipe.all_series()
    if not every:
        raise ValueError(f"{where} must name methods in [sweep], or have a [series], got none.")
    for name, options in recipe.series.items():
        here = f'{where} [series."{name}"]'
        check_names((option for option in options if option != "caps"), here)
        if "method" not in options:
            raise ValueError(f"{here} must name its method.")
        source = options.get("start_from")
        if source is not None and (source not in every or "start_from" in every[source]):
            raise ValueError(f"{here} must start from a series of the recipe that starts from none, got {source!r}.")


def _check_keys(values: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in values:
        if key not in known:
            raise ValueError(f"{where} has a part that is not known, {key!r}: it may have {', '.join(known)}.")
