"""`cce prepare`: raw logs → a data set that trains. One kind of raw data, one set of options."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from cce.data.pipeline import Job
    from cce.data.split import Splitting
    from cce.data.vocabulary import VocabularyRule

EXAMPLE = """examples:
  cce prepare synthetic runs/clicks --rows 300000
  cce prepare criteo-kaggle train.txt runs/kaggle
  cce prepare table clicks.csv runs/clicks --label click --categorical user item --dense age
  cce prepare --like runs/kaggle new.txt runs/new

`cce prepare KIND --help` tells the options of a kind."""

KINDS = {
    "criteo-kaggle": (
        "train.txt of Criteo's Kaggle challenge: label, 13 integers, 26 hexadecimal words",
        "cce prepare criteo-kaggle train.txt runs/kaggle --min-count 2",
    ),
    "criteo-terabyte": (
        "day_0 … day_23 of Criteo's Terabyte log, plain or .gz",
        "cce prepare criteo-terabyte days/ runs/terabyte --sample negatives --keep 0.125 --modulus 40000000 "
        "--vocabulary-from all",
    ),
    "movielens": (
        "ratings of MovieLens 100k, 1M, 10M, 20M, 25M or latest, as a zip, a folder or the file itself",
        "cce prepare movielens ml-25m.zip runs/ml25m",
    ),
    "table": (
        "any CSV, TSV or Parquet file, or a folder of them",
        "cce prepare table clicks.parquet runs/clicks --label click --categorical user item --multi-hot tags "
        "--dense age --split temporal --timestamp time",
    ),
}
RAW_FORMATS = ("criteo-kaggle",)
HEAD_ROWS = 20_000  # of synthetic clicks


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser's."""
    parser = verbs.add_parser(
        "prepare",
        help="turn raw click logs into a data set that trains",
        description="Turn raw click logs into a data set: rows, vocabularies, splits, and a manifest with checksums. "
        "A preparation that was interrupted goes on where it was if it is started again.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ("DATASET", "RAW", "OUT")
    text = "prepare new raw rows with the columns and the ids of a data set that is there already"
    parser.add_argument("--like", nargs=3, type=Path, metavar=names, help=text)
    _add_work_options(parser)
    parser.set_defaults(run=run, kind=None)
    kinds = parser.add_subparsers(dest="kind", metavar="KIND")
    for kind, (about, example) in KINDS.items():
        _add_kind(kinds, kind, about, example)
    _add_synthetic(kinds)


def run(options: argparse.Namespace) -> None:
    """Prepare, and say what came of it."""
    summary = prepare(options)
    print(json.dumps(summary) if options.json else as_text(summary))


def parse(words: list[str]) -> argparse.Namespace:
    """The options of `cce prepare WORDS`."""
    parser = argparse.ArgumentParser(prog="cce")
    add_verb(parser.add_subparsers())
    return parser.parse_args(["prepare", *words])


def prepare(options: argparse.Namespace) -> dict[str, Any]:
    """Prepare; gives a summary."""
    if options.kind == "synthetic":
        return _run_synthetic(options)
    job, out = _job(options)
    return _prepare(job, out, options)


def prepare_head(options: argparse.Namespace, folder: Path) -> float:
    """Prepare the first rows only, in `folder / "data"`; gives how many times more there are, about."""
    if options.kind == "synthetic":
        num_rows = min(options.rows, HEAD_ROWS)
        _run_synthetic(argparse.Namespace(**{**vars(options), "rows": num_rows, "out": folder / "data"}))
        return float(options.rows / num_rows)
    from cce.data.head import head_of

    job, factor = head_of(_job(options)[0], folder)
    _prepare(job, folder / "data", options)
    return factor


def _job(options: argparse.Namespace) -> tuple[Job, Path]:
    _check_pyarrow()
    if options.like is not None:
        from cce.data.like import like

        dataset, raw, out = options.like
        return like(dataset, raw, max_bad_rows=options.max_bad_rows), out
    if options.kind is None:
        raise ValueError(f"KIND must be one of {', '.join((*KINDS, 'synthetic'))}, or --like must be given.")
    make: dict[str, Callable[[argparse.Namespace], Job]] = {
        "criteo-kaggle": _criteo_kaggle,
        "criteo-terabyte": _criteo_terabyte,
        "movielens": _movielens,
        "table": _table,
    }
    return make[options.kind](options), options.out


def _check_pyarrow() -> None:
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise ValueError("raw data is read with pyarrow: pip install 'clustered-embeddings[data]'.")


def _prepare(job: Job, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    from cce.data.engine import open_engine
    from cce.data.pipeline import prepare

    jobs = options.jobs if options.jobs is not None or options.engine != "local" else job.useful_jobs()
    with open_engine(options.engine, jobs) as engine:
        manifest = prepare(job, out, engine=engine, progress=not options.json)
    return _summary(out, manifest)


def _run_synthetic(options: argparse.Namespace) -> dict[str, Any]:
    if options.raw is not None:
        _check_pyarrow()
        from cce.data.criteo_text import write_criteo_text
        from cce.data.writer import check_new

        check_new(options.out)
        write_criteo_text(options.out, options.rows, seed=options.seed)
        return {"out": str(options.out), "kind": options.raw, "bytes": options.out.stat().st_size}
    from cce.data.planted import SyntheticConfig, prepare_synthetic

    config = SyntheticConfig(
        num_rows=options.rows,
        vocabulary_sizes=tuple(options.vocabulary_sizes),
        num_planted=options.planted,
        num_clusters=options.clusters,
        num_dense=options.num_dense,
        zipf=options.zipf,
        seed=options.seed,
    )
    return _summary(options.out, prepare_synthetic(options.out, config, progress=not options.json))


# -- jobs --------------------------------------------------------------------------------------------------------------


def _criteo_kaggle(options: argparse.Namespace) -> Job:
    from cce.data.criteo_kaggle import criteo_kaggle

    return _adjusted(criteo_kaggle(options.raw, rule=_rule(options), max_bad_rows=options.max_bad_rows), options)


def _criteo_terabyte(options: argparse.Namespace) -> Job:
    from cce.data.criteo_terabyte import criteo_terabyte

    job = criteo_terabyte(
        options.raw,
        sample=options.sample,
        keep=options.keep,
        modulus=options.modulus,
        seed=options.seed or 0,
        rule=_rule(options),
        max_bad_rows=options.max_bad_rows,
    )
    return _adjusted(job, options)


def _movielens(options: argparse.Namespace) -> Job:
    from cce.data.movielens import movielens

    return _adjusted(movielens(options.raw, rule=_rule(options), max_bad_rows=options.max_bad_rows), options)


def _table(options: argparse.Namespace) -> Job:
    from cce.data.spec import Columns, Reading
    from cce.data.split import Splitting
    from cce.data.table import table

    columns = Columns(
        label=options.label,
        categorical=tuple(options.categorical),
        dense=tuple(options.dense),
        multi_hot=tuple(options.multi_hot),
        weight=options.weight,
        timestamp=options.timestamp,
    )
    reading = Reading(
        missing=("", *options.missing),
        separator=options.separator,
        log_dense=not options.no_log,
        threshold=options.threshold,
    )
    splitting = _splitting(Splitting(), options)
    return table(
        options.raw,
        columns,
        reading=reading,
        splitting=splitting,
        rule=_rule(options),
        max_bad_rows=options.max_bad_rows,
    )


def _rule(options: argparse.Namespace) -> VocabularyRule:
    from cce.data.vocabulary import VocabularyRule

    return VocabularyRule(options.min_count, options.max_ids, options.vocabulary_from)


def _adjusted(job: Job, options: argparse.Namespace) -> Job:
    return replace(job, splitting=_splitting(job.splitting, options, seed_is_used=job.reading.sample != "all"))


def _splitting(default: Splitting, options: argparse.Namespace, *, seed_is_used: bool = False) -> Splitting:
    """The split that was asked for. A seed may also be that of sampling."""
    from cce.data.split import WAYS

    given = {name: getattr(options, name) for name in ("validation", "test", "seed")}
    given |= {name: getattr(options, name, None) for name in ("validation_values", "test_values")}
    given["column"] = getattr(options, "split_column", None)
    if seed_is_used and "seed" not in WAYS[options.split or default.way]:
        del given["seed"]
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return default.adjusted(options.split, {name: value for name, value in plain.items() if value is not None})


# -- options -----------------------------------------------------------------------------------------------------------


def _add_kind(kinds: Any, kind: str, about: str, example: str) -> None:
    parser = kinds.add_parser(
        kind,
        help=about,
        description=f"Prepare {about}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("raw", type=Path, metavar="RAW", help="the raw file, or the folder of raw files")
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder of the data set; must not exist yet")
    if kind == "criteo-terabyte":
        _add_terabyte_options(parser)
    if kind == "table":
        _add_table_options(parser)
    _add_split_options(parser, kind)
    _add_vocabulary_options(parser)
    _add_work_options(parser)


def _add_synthetic(kinds: Any) -> None:
    about = "made clicks with planted clusters, whose best possible score is known"
    parser = kinds.add_parser(
        "synthetic",
        help=about,
        description=f"Make a data set of {about}.",
        epilog="examples:\n  cce prepare synthetic runs/clicks --rows 300000 --vocabulary-sizes 20000 5000 100\n"
        "  cce prepare synthetic train.txt --rows 2000000 --raw criteo-kaggle",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("out", type=Path, metavar="OUT", help="the folder of the data set; must not exist yet")
    add("--rows", type=int, default=500_000, help="rows in all (default: %(default)s)")
    sizes = [20_000, 5_000, 1_000, 100]
    add("--vocabulary-sizes", type=int, nargs="+", default=sizes, help="ids of each feature (default: %(default)s)")
    add("--planted", type=int, default=None, help="features that matter, from the first on (default: all)")
    add("--clusters", type=int, default=32, help="hidden clusters of a feature (default: %(default)s)")
    add("--num-dense", type=int, default=4, help="dense features (default: %(default)s)")
    add("--zipf", type=float, default=1.0, help="exponent of Zipf's law; 0 draws ids uniformly (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of everything random (default: %(default)s)")
    add("--raw", choices=RAW_FORMATS, default=None, help="write a raw file of this format instead of a data set")
    add("--json", action="store_true", help="print a summary as JSON")


def _add_terabyte_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--sample", choices=("all", "rows", "negatives"), default="all", help="keep all rows, or some, or all positive")
    add("--keep", type=float, default=None, help="share of (negative) rows kept when sampling (default: 0.125)")
    add("--modulus", type=int, default=None, help="reduce the hexadecimal words modulo this number")


def _add_table_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--label", required=True, metavar="COLUMN", help="the column to predict: 0 or 1, or see --threshold")
    add("--categorical", nargs="+", default=[], metavar="COLUMN", help="columns with one value a row")
    add("--multi-hot", nargs="+", default=[], metavar="COLUMN", help="columns of lists, or of values with a separator")
    add("--separator", default="|", help="between the values of a multi-hot column of text (default: %(default)s)")
    add("--dense", nargs="+", default=[], metavar="COLUMN", help="columns of numbers")
    add("--no-log", action="store_true", help="take dense numbers as they are instead of log(1 + x)")
    add("--timestamp", metavar="COLUMN", default=None, help="the column to split by time")
    add("--weight", metavar="COLUMN", default=None, help="the column of row weights")
    add("--threshold", type=float, default=None, help="labels from here on are 1, and below 0")
    add("--missing", nargs="+", default=[], metavar="VALUE", help="words that stand for a missing value, beside none")
    add("--split-column", metavar="COLUMN", default=None, help="the column of --split column")
    add("--validation-values", nargs="+", metavar="VALUE", help="its values for validation")
    add("--test-values", nargs="+", metavar="VALUE", help="its values for the test; others are for training")


def _add_split_options(parser: argparse.ArgumentParser, kind: str) -> None:
    ways = {
        "criteo-kaggle": ("order", "random"),
        "criteo-terabyte": ("last-file", "order", "random"),
        "movielens": ("last-two", "temporal", "random"),
        "table": ("random", "temporal", "column", "order"),
    }[kind]
    add = parser.add_argument
    default = "the last day, in halves" if kind.startswith("criteo") else ways[0]
    add("--split", choices=ways, default=None, help=f"how rows are held out (default: {default})")
    shares = "of --split random, order or temporal (default: 0.1)"
    add("--validation", type=float, default=None, help=f"share of rows for validation {shares}")
    add("--test", type=float, default=None, help=f"share of rows for the test {shares}")
    add("--seed", type=int, default=None, help="seed of all that is random (default: 0)")


def _add_vocabulary_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--min-count", type=int, default=1, help="values seen less often get id 0 (default: %(default)s)")
    add("--max-ids", type=int, default=None, help="keep the most frequent values of a feature only")
    add("--vocabulary-from", choices=("train", "all"), default="train", help="rows that are counted (default: train)")


def _add_work_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--max-bad-rows", type=int, default=0, help="malformed rows that are left out and told (default: %(default)s)")
    add("--jobs", type=int, default=None, help="processes (default: one a core, at most one for each 64 MB)")
    add("--engine", default="local", help="local, ray, or ray://host:port (default: %(default)s)")
    add("--json", action="store_true", help="print a summary as JSON, and no progress")


# -- what is printed ---------------------------------------------------------------------------------------------------


def _summary(out: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    features = {feature["name"]: feature["num_embeddings"] for feature in manifest["schema"]["features"]}
    told = ("splits", "rows", "malformed", "dense", "oracle_bce")
    size = sum(file["bytes"] for file in manifest["files"].values())
    summary = {"out": str(out), "kind": manifest["kind"], "features": features, "bytes": size}
    return summary | {name: manifest[name] for name in told if name in manifest}


def as_text(summary: dict[str, Any]) -> str:
    """A summary for people."""
    from cce.text import format_bytes, format_table

    lines = [f"{summary['kind']}: {summary['out']}, {format_bytes(summary['bytes'])}"]
    if "splits" not in summary:
        return lines[0]
    lines.append("rows: " + ", ".join(f"{split} {count:,}" for split, count in summary["splits"].items()))
    rows = summary.get("rows", {"left_out": 0, "malformed": 0})
    if rows["left_out"] or rows["malformed"]:
        lines.append(f"left out: {rows['left_out']:,} rows by choice, {rows['malformed']:,} malformed")
    lines += summary.get("malformed", [])
    lines.append(format_table(("feature", "ids"), [(n, f"{c:,}") for n, c in summary["features"].items()]))
    dense = [(name, f"{c['missing']:,}", f"{c['negative']:,}") for name, c in summary.get("dense", {}).items()]
    if dense:
        lines.append(format_table(("dense", "missing, now 0", "negative, now 0"), dense))
    if "oracle_bce" in summary:
        lines.append(f"best possible test BCE: {summary['oracle_bce']:.4f}")
    return "\n".join(lines)
