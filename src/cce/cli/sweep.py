"""`cce sweep`: run a recipe, all methods at all budgets with all seeds, and keep a record of each run."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from cce.cli import prepare
from cce.records import strict_json

if TYPE_CHECKING:
    from cce.experiments import FirstRows, Recipe, Run

EXAMPLE = """examples:
  cce sweep quick --jobs 2
  cce sweep recipes/bookcrossing.toml --out runs/bookcrossing --jobs 2
  cce sweep recipes/kaggle.toml --data runs/kaggle --dry-run

The same command resumes a sweep that was stopped: finished runs are skipped, and a killed one is resumed."""


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser."""
    parser = verbs.add_parser(
        "sweep",
        help="run a recipe: many methods, budgets and seeds",
        description="Run all runs of a recipe (a TOML file) and keep a record of each in OUT/records.jsonl. Raw data "
        "is searched for at the path in the recipe, and in the folder CCE_DATA; it is prepared once.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe", metavar="RECIPE", help="TOML file, or a name that `cce list recipes` shows")
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
    from cce.experiments import find_recipe, read_recipe

    options.recipe = find_recipe(options.recipe)
    recipe = read_recipe(options.recipe)
    recipe = replace(recipe, plugins=(*recipe.plugins, *options.plugins))
    if options.seeds is not None:
        recipe = replace(recipe, seeds=tuple(dict.fromkeys(options.seeds)))
    out = options.out or Path("runs/sweeps") / recipe.name
    data = (options.data or Path("runs/data") / recipe.data["name"]).resolve()
    if options.dry_run:
        _dry_run(recipe, data, out, options)
    else:
        _run(recipe, data, out, options)


def _run(recipe: Recipe, data: Path, out: Path, options: argparse.Namespace) -> None:
    from cce.experiments import Sweep

    if options.data is None and not data.exists():
        _prepare(recipe, data, options)
    sweep = Sweep(_runs(recipe, data), out, recipe=options.recipe.read_bytes().decode("utf-8"), only=options.only)
    _warn_of_jobs(options)
    outcome = sweep.run(jobs=options.jobs, engine=options.engine, progress=not options.json)
    if options.json:
        print(strict_json([record.to_dict() for record in outcome.records]))
    else:
        print(f"records: {out}/records.jsonl")
    if outcome.failures:
        reasons = "; ".join(f"{name}: {failure}" for name, failure in outcome.failures.items())
        raise ValueError(f"{len(outcome.failures)} of {len(sweep.chosen)} runs failed, see their error.txt: {reasons}")


def _dry_run(recipe: Recipe, data: Path, out: Path, options: argparse.Namespace) -> None:
    """Read the prepared data or, where it is missing, the first rows of the raw files. Nothing is saved."""
    with TemporaryDirectory() as folder:
        first_rows = None
        if options.data is None and not data.exists():
            first_rows = _first_rows(recipe, data, Path(folder), options)
        _estimate(_runs(recipe, data, first_rows), out, first_rows, options)


def _estimate(runs: list[Run], out: Path, first_rows: FirstRows | None, options: argparse.Namespace) -> None:
    from cce.experiments import Sweep, estimate_cost

    sweep = Sweep(runs, out, only=options.only)
    _warn_of_jobs(options)
    threads = sweep.threads(options.jobs, options.engine)
    found = estimate_cost(sweep, jobs=options.jobs, threads=threads, first_rows=first_rows, progress=not options.json)
    print(json.dumps(found.to_dict()) if options.json else found)


def _runs(recipe: Recipe, data: Path, first_rows: FirstRows | None = None) -> list[Run]:
    from cce.data import PreparedData
    from cce.experiments import list_runs

    schema = PreparedData.open(first_rows.path if first_rows else data).schema
    return list_runs(recipe, data, schema.vocabulary_sizes)


def _warn_of_jobs(options: argparse.Namespace) -> None:
    from cce.workers import num_cores

    if options.engine == "local" and options.jobs > num_cores():
        note = f"{options.jobs} jobs share {num_cores()} cores: they slow each other down"
        print(f"cce sweep: {note}", file=sys.stderr)


def _prepare(recipe: Recipe, data: Path, options: argparse.Namespace) -> None:
    summary = prepare.prepare(_prepare_options(recipe, data, options))
    if not options.json:
        print(prepare.as_text(summary))


def _first_rows(recipe: Recipe, data: Path, folder: Path, options: argparse.Namespace) -> FirstRows:
    from cce.experiments import FirstRows

    return FirstRows(folder / "data", prepare.prepare_head(_prepare_options(recipe, data, options), folder))


def _prepare_options(recipe: Recipe, data: Path, options: argparse.Namespace) -> argparse.Namespace:
    """What the recipe says after `cce prepare`, with raw files where they are."""
    if "prepare" not in recipe.data:
        raise ValueError("recipe must say how its data is prepared, or --data must name a data set.")
    kind, *words = shlex.split(recipe.data["prepare"])
    raw = [] if kind == "synthetic" else [str(_find_raw(words.pop(0)))]
    return prepare.parse([kind, *raw, str(data), *words, *(["--json"] if options.json else [])])


def _find_raw(name: str) -> Path:
    candidates = [Path(name), *(Path(os.environ[key]) / name for key in ("CCE_DATA",) if key in os.environ)]
    for path in candidates:
        if path.exists():
            return path
    raise FileNotFoundError(f"raw data {name!r} must be there or in the folder CCE_DATA, got neither.")
