"""`cce sweep`: run a recipe, all methods at all budgets with all seeds, and keep a record of each run."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cce.cli import recipe_options
from cce.records import strict_json
from cce.text import format_bytes

if TYPE_CHECKING:
    from cce.cli.recipe_options import Setting
    from cce.data import PreparedData
    from cce.experiments import Choices, Run
    from cce.records import RunRecord

EXAMPLE = """examples:
  cce sweep quick --jobs 2
  cce sweep recipes/bookcrossing.toml --out runs/bookcrossing --jobs 2
  cce sweep recipes/kaggle.toml --data runs/kaggle --dry-run
  cce sweep recipes/studies/columns.toml --data runs/kaggle --like recipes/kaggle.toml --dry-run

The same command resumes a sweep that was stopped: finished runs are skipped, and a killed one is resumed. A recipe with
[tune] runs with the options that `cce tune` chose, and tunes first if that was not done yet."""


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
    recipe_options.add_options(parser)
    parser.add_argument("--seeds", nargs="+", type=int, default=None, help="run these seeds, instead of the recipe's")
    parser.add_argument(
        "--tuned", action="store_true", help="take the options that `cce tune` chose, for a recipe without [tune] too"
    )
    parser.add_argument("--json", action="store_true", help="print the records as JSON, and no progress")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prepare the data, run, and print what came of it."""
    setting = recipe_options.read_setting(options)
    if options.seeds is not None:
        setting = replace(setting, recipe=replace(setting.recipe, seeds=tuple(dict.fromkeys(options.seeds))))
    if options.dry_run:
        _dry_run(setting, options)
    else:
        _run(setting, options)


def _run(setting: Setting, options: argparse.Namespace) -> None:
    from cce.experiments import Sweep
    from cce.report import sweep_table

    data = recipe_options.open_data(setting, options)
    recipe_options.warn_of_jobs(options)
    runs = _runs(setting, data, _choices(setting, data, options))
    sweep = Sweep(runs, setting.out, recipe=recipe_options.recipe_text(options), only=options.only)
    shown: dict[str, Any] = {} if options.json else {"progress": True, "report": _print_run}
    outcome = sweep.run(jobs=options.jobs, engine=options.engine, **shown)
    if options.json:
        print(strict_json([record.to_dict() for record in outcome.records]))
    else:
        print(f"{sweep_table(outcome.records)}\nrecords: {setting.out}/records.jsonl")
    if outcome.failures:
        reasons = "; ".join(f"{name}: {failure}" for name, failure in outcome.failures.items())
        raise ValueError(f"{len(outcome.failures)} of {len(sweep.chosen)} runs failed, see their error.txt: {reasons}")


def _print_run(record: RunRecord, count: str) -> None:
    """A line for a finished run, above the progress bar where there is one, and at once where output is piped."""
    from tqdm import tqdm

    scores = ", ".join(f"{name} {score:.4f}" for name, score in record.scores.items())
    words = f"{record.num_params:,} params, {format_bytes(record.nbytes)}, {record.seconds:,.0f} s"
    tqdm.write(f"{count}: {record.name}: {scores}; {words}", file=sys.stdout)
    sys.stdout.flush()


def _choices(setting: Setting, data: PreparedData, options: argparse.Namespace) -> Choices | None:
    """The options that were chosen, or are chosen now; None where the recipe's own are meant."""
    from cce.experiments import Tuning

    if setting.recipe.tune is None and not options.tuned:
        return None
    found = _read_choices(setting, data, options)
    if found is None:
        if setting.recipe.tune is None:
            raise ValueError(f"--tuned must have choices in {setting.out}, got none: run `cce tune` first.")
        _note(options, "tunes first, as the recipe has [tune]")
        tuning = Tuning(setting.recipe, data, setting.out, only=options.only)
        found = tuning.run(jobs=options.jobs, engine=options.engine, progress=not options.json)
    _note(options, f"runs with the options of {setting.out}/tuned.json, chosen on validation rows")
    return found


def _read_choices(setting: Setting, data: PreparedData, options: argparse.Namespace) -> Choices | None:
    """The choices in the folder, checked; None if there are none for the series that are asked for."""
    from cce.experiments import Choices, data_checksum, tuned_series

    found = Choices.read(setting.out)
    if found is None:
        return None
    series = tuned_series(setting.recipe, options.only)
    known = {choice.series for choice in found.choices}
    found.check(setting.recipe, data_checksum(data), [name for name in series if name in known], setting.out)
    return found if set(series) <= known else None


def _note(options: argparse.Namespace, text: str) -> None:
    if not options.json:
        print(f"cce sweep: {text}", file=sys.stderr)


def _dry_run(setting: Setting, options: argparse.Namespace) -> None:
    from cce.experiments import Sweep

    data = recipe_options.open_data(setting, options)
    is_tuned = setting.recipe.tune is not None or options.tuned
    choices = _read_choices(setting, data, options) if is_tuned else None
    if is_tuned and choices is None:
        _note(options, "without tuning, which comes first: see `cce tune RECIPE --dry-run`")
    recipe_options.print_runs(Sweep(_runs(setting, data, choices), setting.out, only=options.only), options)


def _runs(setting: Setting, data: PreparedData, choices: Choices | None) -> list[Run]:
    from cce.experiments import list_runs

    return list_runs(setting.recipe, setting.data, data.schema.vocabulary_sizes, choices=choices)
