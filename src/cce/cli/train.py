"""`cce train`: train a model on a prepared data set, or resume a run that was stopped."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from cce.cli.loading import typed_bytes, typed_count
from cce.evaluation import find_metric, format_scores
from cce.records import RunRecord, strict_json
from cce.run_folder import CONFIG
from cce.training import GROUPS, MORE, STANDARD_INPUT, TrainConfig, check_names, make_config, parse_pairs, read_toml

HELP = "train a model with tables of any kind and size"
DESCRIPTION = (
    "Train a model on a data set made by `cce prepare`. Checkpoints, the log and the record are saved in the folder "
    "of the run. Ctrl-C saves and stops; --resume continues a run that was stopped or killed, with the same result as "
    "without the stop."
)
EXAMPLE = """examples:
  cce train runs/clicks --method cce --cap 8000 --epochs 2 --out runs/clicks-cce
  cce train runs/clicks --method full --optimizer adam --lr 0.01 --batch-size 2048
  cce train runs/clicks --cap 8000 --model deepfm --model-options hidden=[400,400] dropout=0.1 batch_norm=true
  cce train --config run.toml --out runs/one
  cce train --resume runs/clicks-cce
  cce train --stream day1 day2.csv day3.parquet --out runs/daily
  cce train --continue runs/daily day4.csv
  tail -f clicks.jsonl | cce train runs/day1 --stream - --set part_rows=20000 --out runs/live
  torchrun --nproc-per-node 2 -m cce train runs/clicks --cap 8000

A TOML file has the same names as the options here, with _ for -. Options given here override those in the file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", nargs="?", help="folder of a data set made by `cce prepare`")
    parser.add_argument("--out", type=Path, help="folder of the run (default: runs/DATA-METHOD)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of options")
    more = [each.name for each in fields(TrainConfig) if each.metadata.get("group") == MORE and each.name != "plugins"]
    add_set(parser, f"options without a flag of their own, as in a TOML file: {', '.join(more)}")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="resume the run in this folder")
    about = "go on with a stream, on further parts or on what is new in its folders"
    parser.add_argument("--continue", nargs="+", metavar=("RUN", "PART"), dest="go_on", help=about)
    for group, title in GROUPS.items():
        own = [each.name for each in fields(TrainConfig) if each.metadata.get("group") == group]
        add_options(parser.add_argument_group(title), own)


def add_set(parser: Any, about: str) -> None:
    """Add the option that sets any option of a run."""
    parser.add_argument("--set", nargs="+", action="extend", metavar="NAME=VALUE", default=[], help=about)


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


TYPES: dict[str, Any] = {
    "str | float": _number_or_word,
    "int | str": typed_count,
    "int": int,
    "int | None": int,
    "float": float,
    "float | None": float,
    "str": str,
    "str | None": str,
}
LISTS: dict[str, Any] = {"str | list[float]": _number_or_word, "list[str]": str}
PAIRS = "dict[str, Any]"


def add_options(group: Any, names: Sequence[str]) -> None:
    """Add fields of `TrainConfig` as options without a default, so that a file's value holds."""
    for each in (each for name in names for each in fields(TrainConfig) if each.name == name):
        flag, about = "--" + each.name.replace("_", "-"), each.metadata["help"].replace("%", "%%")
        kind = str(each.type)
        if isinstance(each.default, bool):
            about = f"{about} (default: {'yes' if each.default else 'no'})"
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=about)
        elif kind in LISTS:
            metavar = "NUMBER" if "float" in kind else "NAME"
            group.add_argument(flag, nargs="+", type=LISTS[kind], metavar=metavar, help=about)
        elif kind == PAIRS:
            group.add_argument(flag, nargs="+", metavar="NAME=VALUE", help=about)
        else:
            about = about if each.default is None else f"{about} (default: {each.default})"
            typed = typed_bytes if each.name == "nbytes" else TYPES[kind]
            group.add_argument(flag, type=typed, choices=each.metadata["choices"] or None, help=about)


def given_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options given on the command line, and no others."""
    given = parse_pairs("set", options.set)
    check_names(given, "set")
    for each in fields(TrainConfig):
        value = getattr(options, each.name, None)
        if value is not None and value != []:
            given[each.name] = parse_pairs(each.name, value) if each.type == PAIRS else value
    if isinstance(given.get("cluster_at"), list) and len(given["cluster_at"]) == 1:
        (only,) = given["cluster_at"]
        given["cluster_at"] = only if isinstance(only, str) else [only]
    for name in ("data", "start_from"):
        if name in given:
            given[name] = str(Path(given[name]).resolve())  # a run may be resumed from another folder
    if "stream" in given:
        given["stream"] = _named_anywhere(given["stream"])
    file, colon, name = given.get("model", "").rpartition(":")
    if colon and Path(file).is_file():
        given["model"] = f"{Path(file).resolve()}:{name}"
    return given


def _named_anywhere(parts: Sequence[str]) -> list[str]:
    """Parts of a stream as another folder would name them."""
    return [part if part == STANDARD_INPUT else str(Path(part).resolve()) for part in parts]


def run(options: argparse.Namespace) -> None:
    given = given_options(options)
    if options.go_on is not None:
        options.resume, parts = Path(options.go_on[0]), _named_anywhere(options.go_on[1:])
        if parts:
            before = read_toml(options.resume / CONFIG).get("stream", [])
            given["stream"] = [*before, *(part for part in parts if part not in before or part != STANDARD_INPUT)]
    if options.resume is None:
        config = make_config((read_toml(options.config) if options.config is not None else {}) | given)
    elif options.config is not None or options.out is not None:
        raise ValueError("config and out do not go with resume: a run keeps its folder and its options.")
    from cce.distributed import init_distributed
    from cce.training import Trainer

    with init_distributed() as ranks:
        shown = not options.json
        if options.resume is not None:
            trainer = Trainer.resume(options.resume, progress=shown, **given)
        else:
            trainer = Trainer(config, options.out or config.default_folder, progress=shown)
        record, out = trainer.run(), trainer.folder.path
        del trainer
        if ranks.is_main:
            print(strict_json({"out": str(out), **record.to_dict()}) if options.json else as_text(record, out))


def best_validation(record: RunRecord) -> dict[str, float] | None:
    """The validation that the run's leading metric calls the best; none without validations."""
    leading = find_metric(record.config["metrics"][0])
    scored = [scores for scores in record.curve if not math.isnan(leading.loss(scores[leading.name]))]
    return min(scored, key=lambda scores: leading.loss(scores[leading.name]), default=None)


def as_text(record: RunRecord, out: Path) -> str:
    """What a run came to, in a few lines."""
    from cce.text import format_bytes

    is_stream = bool(record.resolved.get("stream"))
    best = None if is_stream else best_validation(record)
    lines = [f"tables: {record.num_params:,} params, {format_bytes(record.nbytes)}"]
    if best is not None:
        scores = {name: score for name, score in best.items() if name not in ("step", "epoch")}
        lines.append(f"best validation: {format_scores(scores)}, after step {best['step']:,}")
    if record.scores:
        what = f"progressive, means of parts 2 to {len(record.curve)}" if is_stream else "test"
        lines.append(f"{what}: {format_scores(record.scores)}")
    parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in record.seconds_by_part.items())
    lines.append(f"{record.samples_per_second:,.0f} rows/s; seconds: {parts}")
    return "\n".join([*lines, f"run: {out}"])
