"""The verbs of the shell as calls of Python, with the same names and options: prepare, train, sweep, and the report.

They do what the shell does and hand back objects instead of printing. Options are declared in one place, that of the
verb: `cce prepare table --multi-hot tags` is `cce.prepare(…, multi_hot=["tags"])`.
"""

from __future__ import annotations

import io
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.cli import report as report_verb
from cce.cli import run_verb
from cce.cli import train as train_verb
from cce.records import read_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce.data import PreparedData
    from cce.records import RunRecord
    from cce.report import Report


def prepare(
    raw: Path | str | None, out: Path | str, *, kind: str = "table", progress: bool = True, **options: Any
) -> PreparedData:
    """Prepare raw data in the folder `out`, as `cce prepare KIND RAW OUT` does, and open it.

    raw: a file or a folder; None where `kind` needs none, or where files are given with `train`.
    options: those of the kind, with _ for -, such as `label="click", categorical=["user", "item"]`.
    """
    from cce.data import PreparedData

    words = [kind, *([] if raw is None else [str(raw)]), str(out), *as_words(options)]
    _run(["prepare", *words], progress=progress)
    return PreparedData.open(out)


def train(
    data: PreparedData | Path | str, *, out: Path | str | None = None, progress: bool = True, **options: Any
) -> RunRecord:
    """Train a model on a prepared data set, as `cce train` does, and return the record of the run.

    out: the folder of the run (default: runs/DATA-METHOD).
    options: those of `TrainConfig`, such as `method="cce", cap=8000, model="deepfm"`.
    """
    from cce.data import PreparedData
    from cce.training import Trainer, make_config

    path = data.path if isinstance(data, PreparedData) else Path(data)
    config = make_config({"data": str(path.resolve()), **options})
    return Trainer(config, train_verb.default_folder(config) if out is None else out, progress=progress).run()


@dataclass(frozen=True)
class SweepResult:
    """The runs of a sweep: the folder that they are in, and the record of each."""

    folder: Path
    records: list[RunRecord]

    def rows(self) -> list[dict[str, Any]]:
        """A flat dictionary for each run, as data frames take them."""
        return [record.to_row() for record in self.records]


def sweep(recipe: Path | str, *, out: Path | str | None = None, progress: bool = True, **options: Any) -> SweepResult:
    """Run all runs of a recipe, as `cce sweep` does; finished ones are not run again.

    out: the folder of the sweep (default: runs/sweeps/RECIPE).
    options: those of `cce sweep`, such as `jobs=2, only=["cce"], seeds=[0]`.
    """
    if options.get("dry_run"):
        raise ValueError("dry_run belongs to the shell: `cce sweep RECIPE --dry-run`.")
    folder = Path("runs/sweeps") / Path(recipe).stem if out is None else Path(out)
    _run(["sweep", str(recipe), *as_words({"out": folder, **options})], progress=progress)
    return SweepResult(folder, read_records(folder / "records.jsonl"))


def make_report(
    *runs: Path | str,
    out: Path | str | None = None,
    format: str = "html",  # noqa: A002 - the shell's name
    figures: bool = True,
) -> Report:
    """Write the report of runs, as `cce report` does, and return it: its tables as rows, its figures to be shown.

    runs: files of records (.jsonl), or folders of sweeps and runs.
    out: the folder of the report (default: report, inside the first of `runs`).
    format: `html`, or a document for a paper: `latex` or `markdown`.
    figures: write files of all figures as well.
    """
    from cce.report import Report, collect, write_report

    if not runs:
        raise ValueError("runs must name at least one folder or file of records, got none.")
    paths = [Path(run) for run in runs]
    folder = report_verb.default_folder(paths[0]) if out is None else Path(out)
    found = collect(paths)
    sections, files = write_report(found, folder, form=format, figures=figures)
    return Report(folder, tuple(sections), tuple(files), tuple(found.notes))


def as_words(options: Mapping[str, Any]) -> list[str]:
    """Options by name as the words that the shell has for them; None and False are left out."""
    words: list[str] = []
    for name, value in options.items():
        typed = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(typed)
        elif isinstance(value, list | tuple):
            words += [typed, *map(str, value)]
        else:
            words.append(f"{typed}={value}")
    return words


def _run(words: list[str], *, progress: bool) -> None:
    """Run a verb; without progress, nothing is printed."""
    with nullcontext() if progress else redirect_stdout(io.StringIO()):
        run_verb([*words, *([] if progress else ["--json"])])
