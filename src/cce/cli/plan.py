"""`cce plan`: the table that every feature gets under a budget."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.budget import DEFAULT_METHOD, FULL, RULES, Budget
from cce.text import format_table, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from cce.embeddings import TrainingDefaults
    from cce.footprint import Footprint

EXAMPLE = """examples:
  cce plan 6000000 800000 1500 --dim 16 --cap 128000
  cce plan user=6000000 item=800000 --nbytes 50MB --rule power
  cce plan data/criteo --method cce --compression 1000 --json
  cce plan data/criteo --nbytes 50M --count

Below the tables it says how many ids of each feature have rows of their own (tables kept in full), learned pointers, or
hashes only. Which method scores best at a budget is not known from sizes: `cce sweep` measures it."""
SPLIT = ("own rows", "learned", "hashed")


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
    parser.add_argument(
        "--count",
        action="store_true",
        help="count ids in the training rows of the data set: pointers are then learned by the ids for which "
        "`cce train` learns them, and the split is shown in percent of occurrences too",
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON instead of a table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Plan and print."""
    from cce.collection import plan_tables

    limits = {"cap": options.cap, "num_params": options.num_params, "nbytes": options.nbytes}
    counts = _counts(options)
    budget = Budget(
        **limits,
        compression=options.compression,
        rule=options.rule,
        power=options.power,
        num_learned=_num_learned(options.method, counts) if counts else None,
    )
    own = {options.method: _defaults(options.method).options_for(options.dim)} if counts else None
    plan = plan_tables(_vocabularies(options.features), options.dim, method=options.method, options=own, budget=budget)
    split = {table.name: parts for table in plan.tables if (parts := _split(table)) is not None}
    if options.json:
        print(json.dumps(plan.to_dict() | {"split": _as_dicts(split, counts)}))
    else:
        print(f"{plan}\n\n{_split_table(split, counts)}" if split else plan)


def _counts(options: argparse.Namespace) -> dict[str, Tensor]:
    """How often each id of each feature occurs in training, if that is asked for."""
    if not options.count:
        return {}
    if len(options.features) != 1 or not Path(options.features[0]).is_dir():
        raise ValueError(f"--count must have the folder of a data set, got {' '.join(options.features)!r}.")
    from cce.data import PreparedData
    from cce.training import count_ids

    return count_ids(PreparedData.open(Path(options.features[0])))


def _num_learned(method: str, counts: Mapping[str, Tensor]) -> dict[str, int] | None:
    """The ids that learn pointers in a training run; None for a method that has none to learn."""
    defaults = _defaults(method)
    if defaults.min_count is None:
        return None
    return {name: defaults.num_learned(count) for name, count in counts.items()}


def _defaults(method: str) -> TrainingDefaults:
    """What `cce train` does with the tables of a method."""
    from cce.checks import check_choice
    from cce.embeddings import METHODS

    check_choice("method", method, METHODS)
    defaults = METHODS[method].training_defaults()
    return defaults.with_refits(defaults.refits)


def _split(table: Footprint) -> tuple[int, int, int] | None:
    """The ids of a feature with own rows, with learned pointers, and with hashes only: the first ones are frequent.

    None for methods that do not tell ids apart so, such as networks of hashes.
    """
    from cce.embeddings import METHODS, Clusterable, ProductQuantizedEmbedding, QuantizedEmbedding, RandomEmbedding

    kind, num_ids = METHODS[table.method], table.num_embeddings
    told = table.sizes.get("num_learned")
    num_learned = num_ids if told is None else told
    if table.method == FULL:
        return num_ids, 0, 0
    if issubclass(kind, QuantizedEmbedding):
        return num_learned, 0, num_ids - num_learned
    if issubclass(kind, (Clusterable, ProductQuantizedEmbedding)):
        return 0, num_learned, num_ids - num_learned
    return (0, 0, num_ids) if issubclass(kind, RandomEmbedding) else None


def _as_dicts(split: Mapping[str, tuple[int, int, int]], counts: Mapping[str, Tensor]) -> dict[str, Any]:
    """The split by feature; with counts, what share of the occurrences falls to each part."""
    return {
        name: {"ids": dict(zip(SPLIT, parts, strict=True))}
        | ({"occurrences": dict(zip(SPLIT, _shares(parts, counts[name]), strict=True))} if counts else {})
        for name, parts in split.items()
    }


def _shares(parts: tuple[int, int, int], counts: Tensor) -> list[float]:
    first, last = parts[0], parts[0] + parts[1]
    total = max(int(counts.sum()), 1)
    return [float(part.sum()) / total for part in (counts[:first], counts[first:last], counts[last:])]


def _split_table(split: Mapping[str, tuple[int, int, int]], counts: Mapping[str, Tensor]) -> str:
    headers = ["ids", *SPLIT, *(f"{part}, %" for part in SPLIT if counts)]
    rows = [
        [name, *(f"{part:,}" for part in parts)]
        + ([f"{100 * share:.1f}" for share in _shares(parts, counts[name])] if counts else [])
        for name, parts in split.items()
    ]
    return format_table(headers, rows)


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
