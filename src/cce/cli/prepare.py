"""`cce prepare`: raw logs → a data set to train on. Sources declare their options."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.data import SOURCES, Option

if TYPE_CHECKING:
    from cce.data import PreparedData

HELP = "turn raw logs into a data set to train on"
DESCRIPTION = (
    "Turn raw logs into a data set: rows, vocabularies, splits, and a manifest with checksums. Run the same command "
    "again to resume a preparation that was interrupted."
)
EXAMPLE = """examples:
  cce prepare synthetic runs/clicks --rows 300000 --vocabulary-sizes 20000 5000 100
  cce prepare synthetic runs/day1 --day 1 --turnover 1 --drift 0.2
  cce prepare criteo-kaggle train.txt runs/kaggle --min-count 2
  cce prepare criteo-terabyte days/ runs/terabyte --sample negatives --keep 0.125 --modulus 40000000
  cce prepare movielens ml-25m/ runs/ml25m
  cce prepare recbole ml-100k/ml-100k.inter runs/ml100k --threshold 4 --split temporal
  cce prepare reczoo Criteo_x1 runs/criteo_x1
  cce prepare table clicks.parquet runs/clicks --label click --categorical user item --dense age:standard
  cce prepare table clicks/ runs/clicks --split files --label click --categorical '*'
"""
OF_VERB = ("verb", "paths", "run", "plugin", "plugins", "json")  # of the parser, or used by `run`
HELD_OUT = "with --split random, order or temporal (default: 0.1)"


OF_ALL = (
    Option("split", "how rows are held out; the choices of each kind are listed below, its default first"),
    Option("validation", f"share of rows held out for validation {HELD_OUT}", type=float),
    Option("test", f"share of rows held out for testing {HELD_OUT}", type=float),
    Option("seed", "random seed (default: 0)", type=int),
    Option("min_count", "values that occur less often get id 0, as unseen ones do (default: 1)", type=int),
    Option("vocabulary_from", "rows whose values are counted (default: train)", choices=("train", "all")),
    Option(
        "hash_ids",
        "make ids by hashing to this many bits, such as 20, without counting values",
        type=int,
        metavar="BITS",
    ),
    Option("max_bad_rows", "number of malformed rows to skip and report before failing (default: 0)", type=int),
    Option("jobs", "number of processes (default: one per core, at most one per 64 MB of input)", type=int),
    Option("engine", "where processes run: local, ray, or ray://host:port (default: local)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", help="format of RAW; the kinds are listed below")
    text = "raw file or folder (none for synthetic), and the folder to create"
    parser.add_argument("paths", type=Path, nargs="+", metavar="RAW OUT", help=text)
    parser.usage = "cce prepare KIND [RAW] OUT [options]"
    groups = {"all kinds (of synthetic, --seed alone)": list(OF_ALL)}
    for source in SOURCES.values():
        for option in source.options:  # of two sources with one option the first one says what it is
            if not any(option.name == known.name for options in groups.values() for known in options):
                having = [each.name for each in SOURCES.values() if option.name in {one.name for one in each.options}]
                groups.setdefault(" and ".join(having), []).append(option)
    for title, options in groups.items():
        _add_options(parser.add_argument_group(f"options of {title}"), options)
    about = "ids are 64-bit hashes of values, for tables without a bound; nothing is counted, no vocabulary is kept"
    parser.add_argument("--open", action="store_true", default=None, help=about)
    _add_synthetic(parser.add_argument_group("options of synthetic"))
    kinds = {name: f"{each.about}; --split {' | '.join(each.splits)}" for name, each in SOURCES.items()}
    kinds["synthetic"] = "clicks that depend on hidden clusters; the best possible score is known"
    parser.epilog = f"{EXAMPLE}\nkinds:\n" + "\n".join(f"  {name:16}{about}" for name, about in kinds.items())


def _add_options(group: Any, options: list[Option]) -> None:
    for option in options:
        group.add_argument(
            "--" + option.name.replace("_", "-"),
            type=option.type,
            choices=option.choices,
            metavar=option.metavar,
            nargs="+" if option.is_list else None,
            help=option.help.replace("%", "%%"),
        )


def _add_synthetic(group: Any) -> None:
    add = group.add_argument
    add("--rows", type=int, dest="num_rows", metavar="N", help="total number of rows (default: 500000)")
    about = "number of ids of each feature (default: 20000 5000 1000 100)"
    add("--vocabulary-sizes", type=int, nargs="+", metavar="N", help=about)
    about = "number of features that affect the label, from the first on (default: all)"
    add("--informative", type=int, dest="num_informative", metavar="N", help=about)
    add(
        "--clusters",
        type=int,
        dest="num_clusters",
        metavar="N",
        help="number of hidden clusters per feature (default: 32)",
    )
    add("--num-dense", type=int, metavar="N", help="number of dense features (default: 4)")
    about = "how often each id is replaced by a new one while training rows go by (default: 0)"
    add("--turnover", type=float, help=about)
    add("--day", type=int, metavar="N", help="this day of a stream: training rows alone, ids of 64 bits")
    add("--days", type=int, metavar="N", help="days of the stream, from time 0 to time 1 (default: 10)")
    add("--drift", type=float, help="share of ids that change cluster during the training rows (default: 0)")


def run(options: argparse.Namespace) -> None:
    from cce.data import prepare

    given = {name: value for name, value in vars(options).items() if name not in OF_VERB and value is not None}
    *raw, out = options.paths
    if len(raw) > 1:
        raise ValueError(f"RAW and OUT must be two paths at most, got {len(options.paths)}.")
    summary = _summary(prepare(raw[0] if raw else None, out, progress=not options.json, **given))
    print(json.dumps(summary) if options.json else as_text(summary))


def _summary(data: PreparedData) -> dict[str, Any]:
    from cce.data import unseen_shares

    manifest = data.manifest
    summary = {"out": str(data.path), "kind": manifest["kind"], "features": data.schema.vocabulary_sizes}
    summary["bytes"] = sum(file["bytes"] for file in manifest["files"].values())
    summary["unseen"] = unseen_shares(data)
    shown = ("splits", "rows", "malformed", "dense", "oracle_bce")
    return summary | {name: manifest[name] for name in shown if name in manifest}


def as_text(summary: dict[str, Any]) -> str:
    from cce.data import unseen_lines
    from cce.text import format_bytes, format_table

    lines = [f"{summary['kind']}: {summary['out']}, {format_bytes(summary['bytes'])}"]
    lines.append("rows: " + ", ".join(f"{split} {count:,}" for split, count in summary["splits"].items()))
    rows = summary.get("rows", {"left_out": 0, "malformed": 0})
    if rows["left_out"] or rows["malformed"]:
        lines.append(f"left out: {rows['left_out']:,} rows by choice, {rows['malformed']:,} malformed")
    lines += summary.get("malformed", [])
    lines.append(
        format_table(
            ("feature", "ids"), [(n, "any" if c is None else f"{c:,}") for n, c in summary["features"].items()]
        )
    )
    lines += unseen_lines(summary["unseen"])
    dense = [(name, f"{c['missing']:,}", f"{c['negative']:,}") for name, c in summary.get("dense", {}).items()]
    if dense:
        lines.append(format_table(("dense", "missing, now 0", "negative, now 0"), dense))
    if "oracle_bce" in summary:
        lines.append(f"best possible BCE: {summary['oracle_bce']:.4f}")
    return "\n".join(lines)
