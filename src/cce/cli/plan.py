"""`cce plan`: the table that every feature gets under a budget, as `cce train` makes it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cce.budget import DEFAULT_METHOD, MEASURES, SIZED_LATER, Budget
from cce.checks import check_choice
from cce.cli.loading import typed_bytes, typed_count
from cce.text import format_table

if TYPE_CHECKING:
    from torch import Tensor

    from cce.training import RunPlan

HELP = "show the table each feature gets under a budget, in parameters and in bytes"
DESCRIPTION = (
    "Show the table that every feature gets under a budget: its method, parameters, bytes of codebook "
    "and pointers, and how many times fewer of each than the full table has. "
    "Nothing is trained or allocated."
)
EXAMPLE = """examples:
  cce plan data/criteo --nbytes 50M
  cce plan data/criteo --method quantized --method-options bits=8 --compression 4 --json
  cce plan 6000000 800000 1500 --dim 16 --cap 128000
  cce plan user=6000000 item=800000 --nbytes 50MB

Of a data set, the tables are those that `cce train` with the same options makes: ids are counted in the training rows.
Below the tables it says how many ids of each feature will have rows, and what share of occurrences has none.

Which method scores best in a budget is not predicted: `cce sweep` measures it on your data."""
NOT_COUNTED = "Ids are not counted: give the folder of a data set to see the tables of `cce train`."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument(
        "features", nargs="+", help="vocabulary sizes, as numbers or NAME=NUMBER, or the folder of a prepared data set"
    )
    parser.add_argument(
        *("--dim", "--embedding-dim"), type=int, default=16, help="dimension of the vectors (default: %(default)s)"
    )
    parser.add_argument(
        "--method", default=DEFAULT_METHOD, help="of the tables that do not fit in full (default: %(default)s)"
    )
    parser.add_argument(
        "--method-options", nargs="+", metavar="NAME=VALUE", default=[], help="as for `cce train`, such as bits=8"
    )
    parser.add_argument("--preset", choices=("tuned", "paper"), default="tuned", help="as for `cce train`")
    parser.add_argument("--refits", type=typed_count, default="auto", help="as for `cce train`")
    parser.add_argument("--min-count", type=int, default=None, help="as for `cce train`")
    _add_budget(parser)


def _add_budget(parser: argparse.ArgumentParser) -> None:
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--cap", type=int, default=None, help="most parameters of any one table")
    budget.add_argument("--num-params", type=int, default=None, help="parameters of all tables together")
    budget.add_argument("--nbytes", type=typed_bytes, default=None, help="bytes of all tables together, such as 50MB")
    budget.add_argument("--compression", type=float, default=None, help="times fewer parameters than the full tables")


def run(options: argparse.Namespace) -> None:
    """Plan and print."""
    vocabularies, counts = _features(options.features)
    plan = _plan(options, vocabularies, counts)
    rows = _rows(plan, counts)
    if options.json:
        more = {"run": {"options": plan.options, "refits": plan.refits}, "rows": rows}
        print(json.dumps(plan.tables.to_dict() | more))
        return
    below = [_rows_table(rows) if rows else "", _made_with(plan) if counts else NOT_COUNTED]
    print("\n\n".join(filter(None, [str(plan.tables), *below])))


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


def _plan(options: argparse.Namespace, vocabularies: Mapping[str, int], counts: Mapping[str, Tensor]) -> RunPlan:
    from cce.collection import plan_tables
    from cce.embeddings import METHODS
    from cce.training import RunPlan, TrainConfig, parse_pairs, plan_run

    limits = {name: getattr(options, name) for name in MEASURES}
    check_choice("method", options.method, METHODS)
    has_own = METHODS[options.method].training_defaults(options.preset).num_rows is not None
    if Budget(**limits).is_full and not has_own:
        return RunPlan(plan_tables(vocabularies, options.dim, method=options.method), {})
    config = TrainConfig(
        data="",
        method=options.method,
        method_options=parse_pairs("method_options", options.method_options),
        preset=options.preset,
        refits=options.refits,
        min_count=options.min_count,
        embedding_dim=options.dim,
        **limits,
    )
    return plan_run(config, vocabularies, counts or None)


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
