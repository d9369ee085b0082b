"""`cce sweep`: run a recipe, all methods at all budgets with all seeds, and keep a record of each run."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.records import strict_json

if TYPE_CHECKING:
    from cce.experiments.recipe import Recipe
    from cce.experiments.runs import Run
    from cce.experiments.sweep import Sweep

EXAMPLE = """examples:
  cce sweep recipes/quick.toml --jobs 2
  cce sweep recipes/bookcrossing.toml --out runs/bookcrossing --jobs 2
  cce sweep recipes/kaggle.toml --data runs/kaggle --dry-run

A sweep that was stopped goes on with the same command: finished runs are kept, and a killed one is resumed."""


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser's."""
    parser = verbs.add_parser(
        "sweep",
        help="run a recipe: many methods, budgets and seeds",
        description="Run all runs of a recipe (a TOML file) and keep a record of each in OUT/records.jsonl. Raw data "
        "is looked for as the recipe names it, and in the folder CCE_DATA; it is prepared once.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="TOML file of the experiment")
    parser.add_argument("--out", type=Path, default=None, help="folder of the sweep (default: runs/sweeps/RECIPE)")
    parser.add_argument("--data", type=Path, default=None, help="prepared data set, instead of the recipe's")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; cores are shared out (default: 1)")
    parser.add_argument("--engine", default="local", help="local, ray, or ray://host:port (default: local)")
    parser.add_argument("--only", nargs="+", metavar="SERIES", default=None, help="run these series only")
    parser.add_argument("--seeds", nargs="+", type=int, default=None, help="run these seeds, instead of the recipe's")
    parser.add_argument("--dry-run", action="store_true", help="show the runs and what they would cost, and run none")
    parser.add_argument("--json", action="store_true", help="print the records as JSON, and no progress")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prepare the data, run, and print what came of it."""
    from cce.experiments.recipe import read_recipe

    recipe = read_recipe(options.recipe)
    if options.seeds is not None:
        recipe = replace(recipe, seeds=tuple(dict.fromkeys(options.seeds)))
    out = options.out or Path("runs/sweeps") / recipe.name
    data = (options.data or _prepared(recipe, options)).resolve()
    runs = _runs(recipe, data)
    from cce.experiments.sweep import Sweep

    text = "" if options.dry_run else options.recipe.read_bytes().decode("utf-8")
    sweep = Sweep(runs, out, recipe=text, only=options.only)
    _warn_of_jobs(options)
    (_estimate if options.dry_run else _run)(sweep, out, options)


def _run(sweep: Sweep, out: Path, options: argparse.Namespace) -> None:
    outcome = sweep.run(jobs=options.jobs, engine=options.engine, progress=not options.json)
    print(
        strict_json([asdict(record) for record in outcome.records]) if options.json else f"records: {out}/records.jsonl"
    )
    if outcome.failures:
        told = "; ".join(f"{name}: {failure}" for name, failure in outcome.failures.items())
        raise ValueError(f"{len(outcome.failures)} of {len(sweep.chosen)} runs failed, see their error.txt: {told}")


def _estimate(sweep: Sweep, out: Path, options: argparse.Namespace) -> None:
    from cce.experiments.estimate import estimate

    del out
    found = estimate(
        sweep, jobs=options.jobs, threads=sweep.threads(options.jobs, options.engine), progress=not options.json
    )
    print(json.dumps(found.to_dict()) if options.json else found)


def _runs(recipe: Recipe, data: Path) -> list[Run]:
    from cce.data import PreparedData
    from cce.experiments.runs import list_runs

    return list_runs(recipe, data, PreparedData.open(data).schema.vocabulary_sizes)


def _warn_of_jobs(options: argparse.Namespace) -> None:
    from cce.data.engine import num_cores

    if options.engine == "local" and options.jobs > num_cores():
        note = f"{options.jobs} jobs share {num_cores()} cores: they slow each other down"
        print(f"cce sweep: {note}", file=sys.stderr)


def _prepared(recipe: Recipe, options: argparse.Namespace) -> Path:
    """The recipe's data set, prepared now if it is not there."""
    from cce.cli import main

    folder = Path("runs/data") / recipe.data["name"]
    if folder.exists():
        return folder
    if "prepare" not in recipe.data:
        raise ValueError("recipe must say how its data is prepared, or --data must name a data set.")
    kind, *words = shlex.split(recipe.data["prepare"])
    raw = [] if kind == "synthetic" else [words.pop(0)]
    if options.dry_run:
        command = shlex.join(["cce", "prepare", kind, *raw, str(folder), *words])
        raise ValueError(f"dry-run must find prepared data, and writes none: first `{command}`.")
    found = [str(_find_raw(name)) for name in raw]
    if main(["prepare", kind, *found, str(folder), *words, *(["--json"] if options.json else [])]):
        raise ValueError(f"data of the recipe could not be prepared: cce prepare {recipe.data['prepare']}")
    return folder


def _find_raw(name: str) -> Path:
    places = [Path(name), *(Path(os.environ[key]) / name for key in ("CCE_DATA",) if key in os.environ)]
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"raw data {name!r} must be there or in the folder CCE_DATA, got neither.")
