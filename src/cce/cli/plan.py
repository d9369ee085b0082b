"""`cce plan`: the table that every feature gets under a budget, as `cce train` makes it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cce.budget import MEASURES, SIZED_LATER
from cce.cli.train import add_options, given_options
from cce.text import format_bytes, format_table

if TYPE_CHECKING:
    from torch import Tensor

    from cce.training import RunPlan

HELP = "show the table each feature gets under a budget, in parameters and in bytes"
DESCRIPTION = (
    "Show the table that every feature gets under a budget: its method, parameters, bytes of codebook "
    "and pointers as it is served, and how many times fewer of each than the full table has; and the bytes of all "
    "tables in training. Nothing is trained or allocated."
)
EXAMPLE = """examples:
  cce plan data/criteo --nbytes 50M
  cce plan data/criteo --method quantized --method-options bits=8 --compression 4 --json
  cce plan 6000000 800000 1500 --embedding-dim 16 --cap 128000
  cce plan user=6000000 item=800000 --nbytes 50MB

Of a data set, the tables are those that `cce train` with the same options makes: ids are counted in the training rows.
Below the tables it says how many ids of each feature will have rows, and what share of occurrences has none.

Which method scores best in a budget is not predicted: `cce sweep` measures it on your data."""
OPTIONS = ("embedding_dim", "method", "method_options", "preset", "optimizer", "batch_size", "refits", "min_count")
NOT_COUNTED = "Ids are not counted: give the folder of a data set to see the tables of `cce train`."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    about = "vocabulary sizes, as numbers or NAME=NUMBER, or the folder of a prepared data set"
    parser.add_argument("features", nargs="+", help=about)
    options = parser.add_argument_group("as for `cce train`")
    add_options(options, OPTIONS)
    add_options(options.add_mutually_exclusive_group(), (*MEASURES, "bits"))


def run(options: argparse.Namespace) -> None:
    """Plan and print."""
    from cce.training import make_config, plan_run

    vocabularies, counts = _features(options.features)
    plan = plan_run(make_config({"data": "", **given_options(options)}), vocabularies, counts or None)
    rows = _rows(plan, counts)
    if options.json:
        run = {"options": plan.options, "refits": plan.refits}
        sizes = {"training_nbytes": plan.training_nbytes, "served_nbytes": [plan.tables.nbytes, plan.most_nbytes]}
        print(json.dumps(plan.tables.to_dict() | sizes | {"run": run, "rows": rows}))
        return
    below = [_sizes(plan), _rows_table(rows) if rows else "", _made_with(plan) if counts else NOT_COUNTED]
    print("\n\n".join(filter(None, [str(plan.tables), *below])))


def _sizes(plan: RunPlan) -> str:
    """What all tables hold in training, and when they are served."""
    least, most = plan.tables.nbytes, plan.most_nbytes
    training = f"in training: {format_bytes(plan.training_nbytes)}, with gradients and the state of the optimizer"
    if least == most:
        return f"{training}\nserved: {format_bytes(least)}"
    which = f"{format_bytes(least)} at one byte an id, as above, and at most {format_bytes(most)}, as int8 rows"
    return f"{training}\nserved: {which}; validation chooses after training, or --bits or --nbytes before it"


def _features(words: list[str]) -> tuple[dict[str, int], dict[str, Tensor]]:
    """Vocabulary sizes by name; of a data set, how often each id occurs in training as well."""
    if len(words) == 1 and Path(words[0]).is_dir():
        from cce.data import PreparedData
        from cce.training import count_ids

        data = PreparedData.open(Path(words[0]))
        return data.schema.vocabulary_sizes, count_ids(data)
    found: dict[str, int] = {}
    for index, word in enumerate(words):
        name, _, number = word.rpartition("=")
        name = name or f"feature_{index}"
        if not number.isdecimal() or word.startswith("="):
            raise ValueError(f"features must be numbers, NAME=NUMBER or the folder of a data set, got {word!r}.")
        if name in found:
            raise ValueError(f"features must have distinct names, got {name!r} twice.")
        found[name] = int(number)
    return found, {}


def _rows(plan: RunPlan, counts: Mapping[str, Tensor]) -> dict[str, dict[str, float]]:
    """By feature whose ids earn rows: how many will have one, and the share of occurrences without."""
    found = {}
    for table in plan.tables.tables:
        if table.name in counts and plan.min_count and table.method in SIZED_LATER:
            own = counts[table.name]
            without = float(own[own < plan.min_count].sum()) / max(1, int(own.sum()))
            num_rows = int((own >= plan.min_count).sum())
            found[table.name] = {"ids": len(own), "ids_with_rows": num_rows, "occurrences_without": without}
    return found


def _rows_table(rows: Mapping[str, Mapping[str, float]]) -> str:
    lines = [
        [name, f"{own['ids']:,}", f"{own['ids_with_rows']:,}", f"{100 * own['occurrences_without']:.1f}"]
        for name, own in rows.items()
    ]
    return format_table(["feature", "ids", "ids with a row", "occurrences without, %"], lines)


def _made_with(plan: RunPlan) -> str:
    """The arguments of the tables that are not full."""
    words = [f"{name}={value}" for name, value in plan.options.items()]
    words += [f"refits={plan.refits}"]
    return f"Tables of `cce train`: {', '.join(words)}."
