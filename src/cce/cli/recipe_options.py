"""What `cce tune` and `cce sweep` have in common: their options, the recipe, its data, and a list of its runs."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.cli import prepare
from cce.text import format_table

if TYPE_CHECKING:
    import argparse

    from cce.data import PreparedData
    from cce.experiments import Recipe, Sweep

RUN_NAMES = ("series", "cap", "num_params", "num_runs")


@dataclass(frozen=True)
class Setting:
    """A recipe, where its data is and where its results go."""

    recipe: Recipe
    data: Path
    out: Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that both verbs have."""
    parser.add_argument("recipe", metavar="RECIPE", help="TOML file, or a name that `cce list recipes` shows")
    parser.add_argument("--out", type=Path, default=None, help="folder of the sweep (default: runs/sweeps/RECIPE)")
    parser.add_argument(
        "--like",
        metavar="RECIPE",
        default=None,
        help="take data, model, optimizer, epochs and caps from this recipe; what is said of tables stays",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=None,
        help="prepared data set, or its name in runs/data, instead of the recipe's",
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; cores are shared out (default: 1)")
    parser.add_argument("--engine", default="local", help="local, ray, or ray://host:port (default: local)")
    parser.add_argument("--only", nargs="+", metavar="SERIES", default=None, help="run these series only")
    parser.add_argument("--dry-run", action="store_true", help="list the runs that are left, and run none")


def read_setting(options: argparse.Namespace) -> Setting:
    """Read the recipe, and find the folders."""
    from cce.experiments import find_recipe, read_recipe, take_ground
    from cce.workers import check_engine

    check_engine(options.engine)
    options.recipe = find_recipe(options.recipe)
    recipe = read_recipe(options.recipe)
    if options.like is not None:
        recipe = take_ground(recipe, read_recipe(find_recipe(options.like)))
    recipe = replace(recipe, plugins=(*recipe.plugins, *options.plugins))
    out = options.out or Path("runs/sweeps") / recipe.name
    data = _find_data(options.data) if options.data else Path("runs/data") / recipe.data["name"]
    return Setting(recipe, data.resolve(), out)


def recipe_text(options: argparse.Namespace) -> str:
    """The recipe as it is kept beside the results: to the byte, below a comment on what it was run like."""
    text = options.recipe.read_bytes().decode("utf-8")
    return text if options.like is None else f"# cce {options.verb} --like {options.like}\n{text}"


def _find_data(path: Path) -> Path:
    """A prepared data set by its path, or by its name in `runs/data`."""
    named = Path("runs/data") / path
    return named if not path.exists() and named.exists() else path


def open_data(setting: Setting, options: argparse.Namespace) -> PreparedData:
    """The data set of a recipe, which is prepared first if it is not there."""
    from cce.data import PreparedData

    if options.data is None and not setting.data.exists():
        summary = prepare.prepare(_prepare_options(setting, options))
        if not options.json:
            print(prepare.as_text(summary))
    return PreparedData.open(setting.data)


def print_runs(sweep: Sweep, options: argparse.Namespace) -> None:
    """The runs that are left: for each series and cap, the parameters of its tables and the number of runs."""
    left = sweep.left()
    found = Counter((run.series, run.config.cap, run.num_params) for run in left)
    rows = [(*run, count) for run, count in found.items()]
    if options.json:
        print(json.dumps([dict(zip(RUN_NAMES, row, strict=True)) for row in rows]))
        return
    cells = [(series, "" if cap is None else f"{cap:,}", f"{size:,}", count) for series, cap, size, count in rows]
    table = format_table(("series", "cap", "params", "runs"), cells)
    print(f"{table}\n{len(left)} of {len(sweep.chosen)} runs are left.")


def warn_of_jobs(options: argparse.Namespace) -> None:
    """Say on stderr if more runs than cores are asked for."""
    from cce.workers import num_cores

    if options.engine == "local" and options.jobs > num_cores():
        note = f"{options.jobs} jobs share {num_cores()} cores: they slow each other down"
        print(f"cce {options.verb}: {note}", file=sys.stderr)


def _prepare_options(setting: Setting, options: argparse.Namespace) -> Any:
    """What the recipe says after `cce prepare`, with raw files where they are."""
    if "prepare" not in setting.recipe.data:
        raise ValueError("recipe must say how its data is prepared, or --data must name a data set.")
    kind, *words = shlex.split(setting.recipe.data["prepare"])
    raw = [] if kind == "synthetic" else [str(_find_raw(words.pop(0)))]
    return prepare.parse([kind, *raw, str(setting.data), *words, *(["--json"] if options.json else [])])


def _find_raw(name: str) -> Path:
    candidates = [Path(name), *(Path(os.environ[key]) / name for key in ("CCE_DATA",) if key in os.environ)]
    for path in candidates:
        if path.exists():
            return path
    raise FileNotFoundError(f"raw data {name!r} must be there or in the folder CCE_DATA, got neither.")
