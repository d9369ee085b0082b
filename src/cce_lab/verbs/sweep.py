"""`cce sweep`: run a recipe, all methods at all budgets with all seeds, and keep a record of each run."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from cce.records import strict_json
from cce.text import format_table

if TYPE_CHECKING:
    from cce_lab.sweeps.running import Sweep

HELP = "run a recipe: many methods, budgets and seeds"
RUN_NAMES = ("series", "cap", "num_params", "num_runs")
DESCRIPTION = (
    "Run all runs of a recipe (a TOML file) and keep a record of each in OUT/records.jsonl. Raw data is searched for "
    "at the path in the recipe, and in the folder CCE_DATA; it is prepared once."
)
EXAMPLE = """examples:
  cce sweep quick --jobs 2
  cce sweep recipes/bookcrossing.toml --out runs/bookcrossing --jobs 2
  cce sweep recipes/kaggle.toml --data runs/kaggle --dry-run
  cce sweep recipes/studies/columns.toml --data runs/kaggle --like recipes/kaggle.toml --dry-run

The same command resumes a sweep that was stopped: finished runs are skipped, and a killed one is resumed. A recipe with
[tune] chooses options for each series first, on validation rows, by trials in OUT/tune."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="TOML file, or a name that `cce recipes` shows")
    parser.add_argument("--out", type=Path, help="folder of the sweep (default: runs/sweeps/RECIPE)")
    about = "take data, model, optimizer, epochs and caps from this recipe, and tables from RECIPE"
    parser.add_argument("--like", metavar="RECIPE", help=about)
    about = "prepared data set, or its name in runs/data, instead of the recipe's"
    parser.add_argument("--data", type=Path, help=about)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; cores are shared out (default: 1)")
    parser.add_argument("--engine", default="local", help="local, ray, or ray://host:port (default: local)")
    parser.add_argument("--only", nargs="+", metavar="SERIES", help="run these series only")
    parser.add_argument("--dry-run", action="store_true", help="list the runs that are left, and run none")
    parser.add_argument("--json", action="store_true", help="print the records as JSON, and no progress")


def run(options: argparse.Namespace) -> None:
    from cce.workers import check_engine
    from cce_lab.report.tables import sweep_table
    from cce_lab.sweeps.running import Experiment

    check_engine(options.engine)
    places = {name: getattr(options, name) for name in ("out", "like", "data", "only", "plugins")}
    experiment = Experiment(options.recipe, **places)
    if options.dry_run:
        print_left(experiment.planned(progress=not options.json), as_json=options.json)
        return
    result = experiment.sweep(jobs=options.jobs, engine=options.engine, progress=not options.json)
    if options.json:
        print(strict_json([record.to_dict() for record in result.records]))
    else:
        print(f"{sweep_table(result.records)}\nrecords: {experiment.out}/records.jsonl")
    result.check()


def print_left(sweeps: list[Sweep], *, as_json: bool) -> None:
    """The runs that are left: for each series and cap, the parameters of its tables and the number of runs."""
    left = [run for sweep in sweeps for run in sweep.left()]
    found = Counter((run.series, run.config.cap, run.num_params) for run in left)
    rows = [(*run, count) for run, count in found.items()]
    if as_json:
        print(json.dumps([dict(zip(RUN_NAMES, row, strict=True)) for row in rows]))
        return
    cells = [(series, "" if cap is None else f"{cap:,}", f"{size:,}", count) for series, cap, size, count in rows]
    table = format_table(("series", "cap", "params", "runs"), cells)
    print(f"{table}\n{len(left)} of {sum(len(sweep.chosen) for sweep in sweeps)} runs are left.")
