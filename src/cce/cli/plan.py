"""`cce plan`: the table that every feature gets under a budget."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from cce.budget import DEFAULT_METHOD, RULES, Budget
from cce.text import parse_bytes

EXAMPLE = """examples:
  cce plan 6000000 800000 1500 --dim 16 --cap 128000
  cce plan user=6000000 item=800000 --nbytes 50MB --rule power
  cce plan data/criteo --method cce --compression 1000 --json"""


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser."""
    parser = verbs.add_parser(
        "plan",
        help="show the table each feature gets under a budget, in parameters and in bytes",
        description="Show the table that every feature gets under a budget: its method, parameters, bytes of codebook "
        "and pointers, and how many times fewer of each than the full table has. Nothing is trained or allocated.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "features", nargs="+", help="vocabulary sizes, as numbers or NAME=NUMBER, or the folder of a prepared data set"
    )
    parser.add_argument("--dim", type=int, default=16, help="dimension of the vectors (default: %(default)s)")
    parser.add_argument(
        "--method", default=DEFAULT_METHOD, help="of the tables that do not fit in full (default: %(default)s)"
    )
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--cap", type=int, default=None, help="most parameters of any one table")
    budget.add_argument("--num-params", type=int, default=None, help="parameters of all tables together")
    budget.add_argument("--nbytes", type=_bytes, default=None, help="bytes of all tables together, such as 50MB")
    budget.add_argument("--compression", type=float, default=None, help="times fewer parameters than the full tables")
    parser.add_argument("--rule", choices=RULES, default="cap", help="how a total is shared out (default: %(default)s)")
    parser.add_argument(
        "--power", type=float, default=0.5, help="exponent of the vocabulary for --rule power (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON instead of a table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Plan and print."""
    from cce.collection import plan_tables

    limits = {"cap": options.cap, "num_params": options.num_params, "nbytes": options.nbytes}
    budget = Budget(**limits, compression=options.compression, rule=options.rule, power=options.power)
    plan = plan_tables(_vocabularies(options.features), options.dim, method=options.method, budget=budget)
    print(json.dumps(plan.to_dict()) if options.json else plan)


def _vocabularies(words: list[str]) -> dict[str, int]:
    if len(words) == 1 and Path(words[0]).is_dir():
        from cce.data import PreparedData

        return PreparedData.open(Path(words[0])).schema.vocabulary_sizes
    found: dict[str, int] = {}
    for index, word in enumerate(words):
        name, _, number = word.rpartition("=")
        name = name or f"feature_{index}"
        if not number.isdecimal() or word.startswith("="):
            raise ValueError(f"features must be numbers, NAME=NUMBER or the folder of a data set, got {word!r}.")
        if name in found:
            raise ValueError(f"features must have distinct names, got {name!r} twice.")
        found[name] = int(number)
    return found


def _bytes(word: str) -> int:
    try:
        return parse_bytes(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
