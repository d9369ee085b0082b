"""`cce tune`: choose learning rate, weight decay and start for each series of a recipe, on validation rows."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cce.records import strict_json
from cce.text import format_table
from cce_lab.verbs.sweep import add_options, make_experiment, print_left

if TYPE_CHECKING:
    from cce_lab.sweeps import Choices, Experiment

HELP = "choose learning rate, weight decay and start for each series of a recipe"
EXAMPLE = """examples:
  cce tune recipes/ml1m.toml --jobs 2
  cce tune recipes/ml1m.toml --only cce hash --dry-run

The same command resumes: finished trials are skipped, and a killed one is resumed. OUT/tuned.json has the choices and
all trials, whose runs are in OUT/tune. `cce sweep` takes the choices."""
HEADERS = ("series", "cap", "lr", "weight decay", "start", "validation", "epochs", "trials")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = (
        "For each series of a recipe, try values of learning rate, weight decay and start: short runs of "
        "all, longer ones of the best. [tune] of the recipe says which. Test rows are never scored."
    )
    parser.epilog = EXAMPLE
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print the choices as JSON, and no progress")


def run(options: argparse.Namespace) -> None:
    """Prepare the data, tune, and print what was chosen."""
    experiment = make_experiment(options)
    if options.dry_run:
        print_left(experiment.planned_tuning(progress=not options.json), as_json=options.json)
        return
    choices = experiment.tune(jobs=options.jobs, engine=options.engine, progress=not options.json)
    print(strict_json(choices.to_dict()) if options.json else _as_text(choices, experiment))


def _as_text(choices: Choices, experiment: Experiment) -> str:
    rows = [
        (
            choice.series,
            "" if choice.cap is None else f"{choice.cap:,}",
            *(_word(choice.options.get(name)) for name in ("lr", "weight_decay", "start_scale")),
            f"{choice.metric} {choice.score:.4f}",
            f"{choice.epochs}",
            f"{len(choice.trials)}",
        )
        for choice in choices.choices
    ]
    skipped = [name for name, own in experiment.recipe.all_series().items() if "start_from" in own]
    lines = [format_table(HEADERS, rows)]
    lines += [f"not tuned, as they start from another series: {', '.join(skipped)}"] if skipped else []
    return "\n".join([*lines, f"choices: {experiment.out}/tuned.json"])


def _word(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:g}"
