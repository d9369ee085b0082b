"""`cce tune`: choose learning rate, weight decay and start for each series of a recipe, on validation rows."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cce.cli import recipe_options
from cce.records import strict_json
from cce.text import format_table

if TYPE_CHECKING:
    from cce.cli.recipe_options import Setting
    from cce.experiments import Choices

EXAMPLE = """examples:
  cce tune recipes/ml1m.toml --jobs 2
  cce tune recipes/ml1m.toml --only cce hash --dry-run

The same command resumes: finished trials are skipped, and a killed one is resumed. OUT/tuned.json has the choices and
all trials, whose runs are in OUT/tune. `cce sweep` takes the choices if the recipe has [tune], or with --tuned."""
HEADERS = ("series", "cap", "lr", "weight decay", "start", "validation", "epochs", "trials")


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser."""
    parser = verbs.add_parser(
        "tune",
        help="choose learning rate, weight decay and start for each series of a recipe",
        description="For each series of a recipe, try values of learning rate, weight decay and start: short runs of "
        "all, longer ones of the best. [tune] of the recipe says which. Test rows are never scored.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    recipe_options.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print the choices as JSON, and no progress")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prepare the data, tune, and print what was chosen."""
    from cce.experiments import Tuning

    setting = recipe_options.read_setting(options)
    tuning = Tuning(setting.recipe, recipe_options.open_data(setting, options), setting.out, only=options.only)
    if options.dry_run:
        recipe_options.print_runs(tuning.planned(), options)
        return
    recipe_options.warn_of_jobs(options)
    choices = tuning.run(jobs=options.jobs, engine=options.engine, progress=not options.json)
    print(strict_json(choices.to_dict()) if options.json else _as_text(choices, setting))


def _as_text(choices: Choices, setting: Setting) -> str:
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
    skipped = [name for name, own in setting.recipe.all_series().items() if "start_from" in own]
    lines = [format_table(HEADERS, rows)]
    lines += [f"not tuned, as they start from another series: {', '.join(skipped)}"] if skipped else []
    return "\n".join([*lines, f"choices: {setting.out}/tuned.json"])


def _word(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:g}"
