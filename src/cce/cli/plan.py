"""`cce plan`: the table that every feature gets under a budget, as `cce train` makes it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from cce.cli.train import add_options, add_set, given_options
from cce.text import format_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from cce.training import RunPlan

HELP = "show the table each feature gets under a budget, in parameters and in bytes"
DESCRIPTION = (
    "Show the table that each feature gets under a budget: its method, its parameters, its bytes of codebook and "
    "pointers when served, and how many times fewer than the full table has; and the bytes of all tables in training. "
    "Nothing is trained or allocated."
)
EXAMPLE = """examples:
  cce plan data/criteo --nbytes 50M
  cce plan data/criteo --method quantized --method-options bits=8 --set compression=4 --json
  cce plan 6000000 800000 1500 --embedding-dim 16 --cap 128000
  cce plan user=6000000 item=800000 --nbytes 50MB

For a data set, the tables are those that `cce train` makes with the same options: ids are counted in the training rows.

It does not predict which method scores best: `cce sweep` measures that on your data."""
NOT_COUNTED = "Ids are not counted: give the folder of a data set to see the tables of `cce train`."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "vocabulary sizes, as numbers or NAME=NUMBER, or the folder of a prepared data set"
    parser.add_argument("features", nargs="+", help=about)
    options = parser.add_argument_group("as for `cce train`")
    add_options(options, ("embedding_dim", "method", "method_options"))
    add_options(options.add_mutually_exclusive_group(), ("cap", "nbytes", "bits"))
    add_set(options, "any other option of `cce train`, such as compression=20 or optimizer=sgd")


def run(options: argparse.Namespace) -> None:
    from cce.training import make_config, plan_run

    vocabularies, counts = _features(options.features)
    plan = plan_run(make_config({"data": "", **given_options(options)}), vocabularies, counts or None)
    if options.json:
        run = {"options": plan.options, "refits": plan.refits}
        sizes = {"training_nbytes": plan.training_nbytes, "served_nbytes": [plan.least_nbytes, plan.most_nbytes]}
        print(json.dumps(plan.tables.to_dict() | sizes | {"run": run}))
        return
    words = ", ".join(f"{name}={value}" for name, value in [*plan.options.items(), ("refits", plan.refits)])
    made_with = f"Tables of `cce train`: {words}." if counts else NOT_COUNTED
    print("\n\n".join([str(plan.tables), _sizes(plan), made_with]))


def _sizes(plan: RunPlan) -> str:
    """The bytes of all tables in training, and when served."""
    least, most = plan.least_nbytes, plan.most_nbytes
    training = f"in training: {format_bytes(plan.training_nbytes)}, with gradients and the state of the optimizer"
    if least == most:
        return f"{training}\nserved: {format_bytes(least)}"
    usual = format_bytes(plan.tables.nbytes)
    which = f"{format_bytes(least)} to {format_bytes(most)}, and {usual} at one byte per id, as above"
    return f"{training}\nserved: {which}; validation chooses after training, or --bits or --nbytes before it"


def _features(words: list[str]) -> tuple[dict[str, int], dict[str, Tensor]]:
    """Vocabulary sizes by name; of a data set, how often each id occurs in training as well."""
    if len(words) == 1 and Path(words[0]).is_dir():
        from cce.data import PreparedData
        from cce.training import count_ids

        data = PreparedData.open(Path(words[0]))
        sizes = data.schema.vocabulary_sizes
        return sizes, {name: count_ids(data, name) for name, size in sizes.items() if size is not None}
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
