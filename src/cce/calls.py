"""The verbs of the shell as calls of Python, with the same names and options: prepare and train.

They do what the shell does and hand back objects instead of printing. Options are declared in one place, that of the
verb: `cce prepare table --multi-hot tags` is `cce.prepare(…, multi_hot=["tags"])`.
"""

from __future__ import annotations

import io
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.cli import run_verb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce.data import PreparedData
    from cce.records import RunRecord


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
    return Trainer(config, config.default_folder if out is None else out, progress=progress).run()


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
