"""`cce prepare`: raw logs → a data set that trains. A sub-command for each source, built from what it declares."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from cce.data import SOURCES, Option, check_pyarrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cce.data import Job, Source

EXAMPLE = """examples:
  cce prepare synthetic runs/clicks --rows 300000
  cce prepare criteo-kaggle train.txt runs/kaggle
  cce prepare table clicks.csv runs/clicks --label click --categorical user item --dense age:standard
  cce prepare table runs/clicks --train a.csv b.csv --test c.csv --label click --categorical '*'
  cce prepare --reuse-vocabulary runs/kaggle new.txt runs/new

`cce prepare KIND --help` shows the options of a kind."""
STANDARD = Path("-")
RAW_FORMATS = ("criteo-kaggle",)
VOCABULARY = (
    Option("min_count", "values seen less often get id 0 (default: 1)", type=int),
    Option("max_ids", "keep the most frequent values of a feature only", type=int),
    Option("vocabulary_from", "rows that are counted (default: train)", choices=("train", "all")),
    Option("hash_ids", "ids are hashes of so many bits; nothing is counted, such as 20", type=int, metavar="BITS"),
)
WORK = (
    Option("max_bad_rows", "malformed rows that are left out and reported (default: 0)", type=int),
    Option("jobs", "processes (default: one a core, at most one for each 64 MB)", type=int),
    Option("engine", "local, ray, or ray://host:port (default: local)"),
    Option("json", "print a summary as JSON, and no progress", is_flag=True),
)


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser."""
    parser = verbs.add_parser(
        "prepare",
        help="turn raw click logs into a data set that trains",
        description="Turn raw click logs into a data set: rows, vocabularies, splits, and a manifest with checksums. "
        "A preparation that was interrupted resumes when it is started again.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ("DATASET", "RAW", "OUT")
    text = "prepare new raw rows with the columns and the ids of a data set that is there already"
    parser.add_argument("--reuse-vocabulary", nargs=3, type=Path, metavar=names, help=text)
    _add_options(parser, WORK)
    parser.set_defaults(run=run, kind=None)
    kinds = parser.add_subparsers(dest="kind", metavar="KIND")
    for source in SOURCES.values():
        _add_source(kinds, source)
    _add_synthetic(kinds)


def run(options: argparse.Namespace) -> None:
    """Prepare, and say what came of it."""
    summary = prepare(options)
    print(json.dumps(summary) if options.json else as_text(summary))


def prepare(options: argparse.Namespace) -> dict[str, Any]:
    """Prepare the data set and return a summary."""
    if options.kind == "synthetic":
        return _run_synthetic(options)
    with _standard_input(options):
        job, out = _job(options)
        return _prepare(job, out, options)


@contextmanager
def _standard_input(options: argparse.Namespace) -> Iterator[None]:
    """Copy standard input, where it is what is to be prepared, to a file: rows are read more than once."""
    if getattr(options, "raw", None) != STANDARD or not hasattr(options, "format"):
        yield
        return
    with TemporaryDirectory() as folder:
        options.raw = Path(folder) / f"standard-input.{options.format or 'csv'}"
        with options.raw.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield


def _job(options: argparse.Namespace) -> tuple[Job, Path]:
    check_pyarrow()
    if options.reuse_vocabulary is not None:
        from cce.data import reuse_vocabulary

        dataset, raw, out = options.reuse_vocabulary
        return reuse_vocabulary(dataset, raw, max_bad_rows=options.max_bad_rows or 0), out
    if options.kind not in SOURCES:
        kinds = ", ".join((*SOURCES, "synthetic"))
        raise ValueError(f"KIND must be one of {kinds}, or --reuse-vocabulary must be given.")
    return SOURCES[options.kind].job(options.raw, vars(options)), options.out


def _prepare(job: Job, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    from cce.data import prepare_data
    from cce.workers import open_engine

    name = options.engine or "local"
    jobs = options.jobs if options.jobs is not None or name != "local" else job.useful_jobs()
    with open_engine(name, jobs) as engine:
        manifest = prepare_data(job, out, engine=engine, progress=not options.json)
    return _summary(out, manifest)


def _run_synthetic(options: argparse.Namespace) -> dict[str, Any]:
    if options.raw is not None:
        return _write_raw(options)
    from cce.data import SyntheticConfig, prepare_synthetic

    config = SyntheticConfig(
        num_rows=options.rows,
        vocabulary_sizes=tuple(options.vocabulary_sizes),
        num_informative=options.informative,
        num_clusters=options.clusters,
        num_dense=options.num_dense,
        zipf=options.zipf,
        drift=options.drift,
        seed=options.seed,
    )
    return _summary(options.out, prepare_synthetic(options.out, config, progress=not options.json))


def _write_raw(options: argparse.Namespace) -> dict[str, Any]:
    check_pyarrow()
    from cce.data import check_new, write_criteo_text

    check_new(options.out)
    write_criteo_text(options.out, options.rows, seed=options.seed)
    return {"out": str(options.out), "kind": options.raw, "bytes": options.out.stat().st_size}


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
    text += "; - for standard input; none with --train" if source.has_split_files else ""
    parser.add_argument("raw", type=Path, metavar="RAW", nargs=count, help=text)
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder of the data set; must not exist yet")
    _add_options(parser, (*source.options, *_split_options(source), *VOCABULARY, *WORK))


def _split_options(source: Source) -> tuple[Option, ...]:
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
        if option.is_flag:
            parser.add_argument(name, action="store_true", help=text)
            continue
        parser.add_argument(
            name,
            type=option.type,
            choices=option.choices,
            metavar=option.metavar,
            nargs="+" if option.is_list else None,
            required=option.required,
            help=text,
        )


def _add_synthetic(kinds: Any) -> None:
    about = "synthetic clicks of hidden clusters, whose best possible score is known"
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
    add("--informative", type=int, default=None, help="features that matter, from the first on (default: all)")
    add("--clusters", type=int, default=32, help="hidden clusters of a feature (default: %(default)s)")
    add("--num-dense", type=int, default=4, help="dense features (default: %(default)s)")
    add("--zipf", type=float, default=1.0, help="exponent of Zipf's law; 0 draws ids uniformly (default: %(default)s)")
    help_of_drift = "share of ids that change cluster while training rows go by, in their order (default: %(default)s)"
    add("--drift", type=float, default=0.0, help=help_of_drift)
    add("--seed", type=int, default=0, help="seed of everything random (default: %(default)s)")
    add("--raw", choices=RAW_FORMATS, default=None, help="write a raw file of this format instead of a data set")
    add("--json", action="store_true", help="print a summary as JSON")


# -- what is printed ---------------------------------------------------------------------------------------------------


def _summary(out: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    from cce.data import has_labels, unseen_shares
    from cce.schema import Schema

    features = {feature["name"]: feature["num_embeddings"] for feature in manifest["schema"]["features"]}
    shown = ("splits", "rows", "malformed", "dense", "oracle_bce")
    size = sum(file["bytes"] for file in manifest["files"].values())
    summary = {"out": str(out), "kind": manifest["kind"], "features": features, "bytes": size}
    summary["has_labels"] = has_labels(manifest)
    if "train" in manifest["splits"]:
        summary["unseen"] = unseen_shares(out, manifest["splits"], Schema.from_dict(manifest["schema"]))
    return summary | {name: manifest[name] for name in shown if name in manifest}


def as_text(summary: dict[str, Any]) -> str:
    """A summary for people."""
    from cce.data import unseen_lines
    from cce.text import format_bytes, format_table

    lines = [f"{summary['kind']}: {summary['out']}, {format_bytes(summary['bytes'])}"]
    if "splits" not in summary:
        return lines[0]
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
