"""`cce sweep`: run a recipe, all methods at all budgets with all seeds, and keep a record of each run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.records import strict_json
from cce_lab.verbs.recipe_options import add_options, make_experiment, print_left

if TYPE_CHECKING:
    import argparse

HELP = "run a recipe: many methods, budgets and seeds"
EXAMPLE = """examples:
  cce sweep quick --jobs 2
  cce sweep recipes/bookcrossing.toml --out runs/bookcrossing --jobs 2
  cce sweep recipes/kaggle.toml --data runs/kaggle --dry-run
  cce sweep recipes/studies/columns.toml --data runs/kaggle --like recipes/kaggle.toml --dry-run

The same command resumes a sweep that was stopped: finished runs are skipped, and a killed one is resumed. A recipe with
[tune] runs with the options that `cce tune` chose, and tunes first if that was not done yet."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = (
        "Run all runs of a recipe (a TOML file) and keep a record of each in OUT/records.jsonl. Raw data "
        "is searched for at the path in the recipe, and in the folder CCE_DATA; it is prepared once."
    )
    parser.epilog = EXAMPLE
    add_options(parser)
    parser.add_argument("--seeds", nargs="+", type=int, default=None, help="run these seeds, instead of the recipe's")
    parser.add_argument(
        "--tuned", action="store_true", help="take the options that `cce tune` chose, for a recipe without [tune] too"
    )
    parser.add_argument("--json", action="store_true", help="print the records as JSON, and no progress")


def run(options: argparse.Namespace) -> None:
    """Prepare the data, run, and print what came of it."""
    from cce_lab.report import sweep_table

    experiment = make_experiment(options, options.seeds)
    if options.dry_run:
        print_left(experiment.planned_sweep(tuned=options.tuned, progress=not options.json), as_json=options.json)
        return
    result = experiment.sweep(tuned=options.tuned, jobs=options.jobs, engine=options.engine, progress=not options.json)
    if options.json:
        print(strict_json([record.to_dict() for record in result.records]))
    else:
        print(f"{sweep_table(result.records)}\nrecords: {result.folder}/records.jsonl")
    result.check()
