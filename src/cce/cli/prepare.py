"""`cce prepare`: raw logs → a data set that trains. A sub-command for each source, built from what it declares."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.data import SOURCES, Option, Source

if TYPE_CHECKING:
    from cce.data import PreparedData

HELP = "turn raw click logs into a data set that trains"
DESCRIPTION = (
    "Turn raw click logs into a data set: rows, vocabularies, splits, and a manifest with checksums. "
    "A preparation that was interrupted resumes when it is started again."
)
EXAMPLE = """examples:
  cce prepare synthetic runs/clicks --rows 300000
  cce prepare criteo-kaggle train.txt runs/kaggle
  cce prepare table clicks.csv runs/clicks --label click --categorical user item --dense age:standard
  cce prepare table runs/clicks --train a.csv b.csv --test c.csv --label click --categorical '*'
  cce prepare --reuse-vocabulary runs/kaggle new.txt runs/new

`cce prepare KIND --help` shows the options of a kind."""
VOCABULARY = (
    Option("min_count", "values seen less often are unseen, id 0 (default: 1)", type=int),
    Option("vocabulary_from", "rows that are counted (default: train)", choices=("train", "all")),
    Option("hash_ids", "ids are hashes of so many bits; nothing is counted, such as 20", type=int, metavar="BITS"),
)
OF_VERB = ("verb", "kind", "run", "plugin", "plugins", "json", "reuse_vocabulary")  # of the parser, or used by `run`
WORK = (
    Option("max_bad_rows", "malformed rows that are left out and reported (default: 0)", type=int),
    Option("jobs", "processes (default: one a core, at most one for each 64 MB)", type=int),
    Option("engine", "local, ray, or ray://host:port (default: local)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    names = ("DATASET", "RAW", "OUT")
    text = "prepare new raw rows with the columns and the ids of a data set that is there already"
    parser.add_argument("--reuse-vocabulary", nargs=3, type=Path, metavar=names, help=text)
    _add_options(parser, WORK)
    parser.set_defaults(kind=None)
    kinds = parser.add_subparsers(dest="kind", metavar="KIND")
    for source in SOURCES.values():
        _add_source(kinds, source)
    _add_synthetic(kinds)


def run(options: argparse.Namespace) -> None:
    """Prepare, and say what came of it."""
    from cce.data import prepare

    given = {name: value for name, value in vars(options).items() if name not in OF_VERB and value is not None}
    if options.reuse_vocabulary is not None:
        dataset, raw, out = options.reuse_vocabulary
        data = prepare(raw, out, reuse_vocabulary=dataset, progress=not options.json, **given)
    elif options.kind is None:
        raise ValueError(f"KIND must be one of {', '.join((*SOURCES, 'synthetic'))}, or --reuse-vocabulary be given.")
    else:
        raw, out = given.pop("raw", None), given.pop("out")
        data = prepare(raw, out, kind=options.kind, progress=not options.json, **given)
    summary = _summary(data)
    print(json.dumps(summary) if options.json else as_text(summary))


# -- options -----------------------------------------------------------------------------------------------------------


def _add_source(kinds: Any, source: Source) -> None:
    parser = kinds.add_parser(
        source.name,
        help=source.about,
        description=f"Prepare {source.about}.",
        epilog=f"example:\n  {source.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    count = "?" if source.has_split_files else None
    text = "the raw file, or the folder of raw files"
    text += "; none with --train" if source.has_split_files else ""
    parser.add_argument("raw", type=Path, metavar="RAW", nargs=count, help=text)
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder of the data set; must not exist yet")
    _add_options(parser, (*source.options, *_split_options(source), *VOCABULARY, *WORK))


def _split_options(source: Source) -> tuple[Option, ...]:
    if len(source.splits) == 1:
        return ()
    shares = "of --split random, order or temporal (default: 0.1)"
    seed = Option("seed", "seed of everything random (default: 0)", type=int)
    way = Option("split", f"how rows are held out (default: {source.default_split})", choices=source.splits)
    held_out = {"validation": f"share of rows for validation {shares}", "test": f"share of rows for the test {shares}"}
    if not source.has_split_files:
        return (way, *(Option(name, text, type=float) for name, text in held_out.items()), seed)
    files = {
        name: Option(name, f"{text}, or files", _share_or_file, metavar="FILE", is_list=True)
        for name, text in held_out.items()
    }
    train = Option("train", "files to train on, instead of RAW", metavar="FILE", is_list=True)
    return (way, train, *files.values(), seed)


def _share_or_file(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _add_options(parser: argparse.ArgumentParser, options: tuple[Option, ...]) -> None:
    for option in options:
        name, text = "--" + option.name.replace("_", "-"), option.help.replace("%", "%%")
        parser.add_argument(
            name,
            type=option.type,
            choices=option.choices,
            metavar=option.metavar,
            nargs="+" if option.is_list else None,
            required=option.required,
            help=text,
        )
    _add_json(parser)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a summary as JSON, and no progress")


def _add_synthetic(kinds: Any) -> None:
    about = "synthetic clicks of hidden clusters, whose best possible score is known"
    parser = kinds.add_parser(
        "synthetic",
        help=about,
        description=f"Make a data set of {about}.",
        epilog="examples:\n  cce prepare synthetic runs/clicks --rows 300000 --vocabulary-sizes 20000 5000 100",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("out", type=Path, metavar="OUT", help="the folder of the data set; must not exist yet")
    add("--rows", type=int, dest="num_rows", metavar="N", help="rows in all (default: 500000)")
    about = "ids of each feature (default: 20000 5000 1000 100)"
    add("--vocabulary-sizes", type=int, nargs="+", metavar="N", help=about)
    about = "features that matter, from the first on (default: all)"
    add("--informative", type=int, dest="num_informative", metavar="N", help=about)
    add("--clusters", type=int, dest="num_clusters", metavar="N", help="hidden clusters of a feature (default: 32)")
    add("--num-dense", type=int, metavar="N", help="dense features (default: 4)")
    add("--drift", type=float, help="share of ids that change cluster while training rows go by (default: 0)")
    add("--seed", type=int, help="seed of everything random (default: 0)")
    _add_json(parser)


# -- what is printed ---------------------------------------------------------------------------------------------------


def _summary(data: PreparedData) -> dict[str, Any]:
    from cce.data import unseen_shares

    manifest = data.manifest
    summary = {"out": str(data.path), "kind": manifest["kind"], "features": data.schema.vocabulary_sizes}
    summary["bytes"] = sum(file["bytes"] for file in manifest["files"].values())
    summary["has_labels"] = data.has_labels
    if "train" in data.splits:
        summary["unseen"] = unseen_shares(data.path, data.splits, data.schema)
    shown = ("splits", "rows", "malformed", "dense", "oracle_bce")
    return summary | {name: manifest[name] for name in shown if name in manifest}


def as_text(summary: dict[str, Any]) -> str:
    """A summary for people."""
    from cce.data import unseen_lines
    from cce.text import format_bytes, format_table

    lines = [f"{summary['kind']}: {summary['out']}, {format_bytes(summary['bytes'])}"]
    rows_of = ", ".join(f"{split} {count:,}" for split, count in summary["splits"].items())
    lines.append(f"rows: {rows_of}" + ("" if summary["has_labels"] else ", without labels"))
    rows = summary.get("rows", {"left_out": 0, "malformed": 0})
    if rows["left_out"] or rows["malformed"]:
        lines.append(f"left out: {rows['left_out']:,} rows by choice, {rows['malformed']:,} malformed")
    lines += summary.get("malformed", [])
    lines.append(format_table(("feature", "ids"), [(n, f"{c:,}") for n, c in summary["features"].items()]))
    lines += unseen_lines(summary["unseen"]) if "unseen" in summary else []
    dense = [(name, f"{c['missing']:,}", f"{c['negative']:,}") for name, c in summary.get("dense", {}).items()]
    if dense:
        lines.append(format_table(("dense", "missing, now 0", "negative, now 0"), dense))
    if "oracle_bce" in summary:
        lines.append(f"best possible test BCE: {summary['oracle_bce']:.4f}")
    return "\n".join(lines)
