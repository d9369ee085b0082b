"""`export_model`: a trained model as files that are served without this package.

A folder: the program or the bundle (`model.onnx`, `model.pt2`, `model.safetensors`), `export.json`, which says what its
inputs are, the vocabularies by which raw values become ids, and `numpy_reader.py`, which reads them. It is written
beside its destination and renamed at the end: a failure, a full disk or a failed verification leaves nothing.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from cce.checks import check_choice
from cce.files import replace_folder
from cce.schema import Batch, Schema
from cce.serving import FORMAT_NAMES, numpy_deltas, numpy_reader
from cce.serving.freezing import freeze, frozen_tables, write_bundle
from cce.serving.program import (
    EXAMPLE_ROWS,
    OUTPUT,
    Inputs,
    ServedModel,
    example_inputs,
    make_inputs,
    quiet_tracing,
    run_onnx,
    trace,
    write_onnx,
    write_pt2,
)
from cce.version import __version__

if TYPE_CHECKING:
    from cce.data import PreparedData, Vocabulary
    from cce.runs import LoadedRun

Format = Literal["safetensors", "pt2", "onnx"]
Program = Callable[[Inputs], Tensor]
MANIFEST, VERSION = "export.json", 1
BATCH = 4_096
SWEPT = 1 << 16  # rows over the range of ids, with which a program is verified
TOLERANCE = 1e-4  # largest difference of a logit that is let through


@dataclass(frozen=True)
class Verification:
    """What was compared, and how far apart it is."""

    split: str
    num_rows: int  # held out
    num_swept: int  # over the range of ids
    difference: float  # largest, of a logit

    def __str__(self) -> str:
        rows = f"{self.num_rows:,} rows of {self.split} and {self.num_swept:,} over all ids"
        return f"largest difference of a logit {self.difference:.7f} ({rows})"


@dataclass(frozen=True)
class Export:
    """What was written."""

    path: Path
    format: str
    nbytes: int
    table_nbytes: int  # of the tables alone
    verification: Verification | None
    missing: str = ""  # why a run has no vocabularies

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path)}


def export_model(
    model: nn.Module,
    schema: Schema,
    out: Path | str,
    *,
    format: Format = "safetensors",  # noqa: A002  # what the command line calls it
    vocabularies: Mapping[str, Vocabulary] | None = None,
    raw: Mapping[str, Any] | None = None,
    data: PreparedData | None = None,
) -> Export:
    """Freeze a trained model and write it to the folder `out`, which must not exist yet.

    format: "onnx" or "pt2" (torch.export), whole programs; "safetensors", the frozen tables and all weights, for
        `numpy_reader`.
    vocabularies: of the features, by name, which turn raw values into ids.
    raw: how columns of raw rows were read and transformed, for the manifest.
    data: verify with the held-out rows of this data set; if a logit differs by more than 1e-4, nothing is written.
    """
    check_choice("format", format, FORMAT_NAMES)
    frozen = freeze(model)
    if format != "safetensors" or data is not None:
        _check_call(frozen, schema)
    destination = Path(out)
    _check_absent(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    with replace_folder(destination) as folder:
        path = folder / f"model.{format}"
        _write(path, frozen, schema)
        verified = None
        if data is not None:
            verified = verify(load_program(path, frozen, schema), _for_inference(model), data, schema)
        saved = {name: f"vocabulary/{index:03d}.safetensors" for index, name in enumerate(vocabularies or {})}
        for feature, vocabulary in (vocabularies or {}).items():
            (folder / "vocabulary").mkdir(exist_ok=True)
            vocabulary.save(folder / saved[feature])
        for module in (numpy_reader, *([numpy_deltas] if format == "safetensors" else ())):  # as files of their own
            text = Path(module.__file__).read_text(encoding="utf-8").replace("from cce.serving.numpy", "from numpy")
            (folder / f"{module.__name__.rpartition('.')[2]}.py").write_text(text, encoding="utf-8")
        made = {"format": format, "file": path.name, "vocabularies": saved, "raw": raw}
        _write_manifest(folder / MANIFEST, made, schema, verified)
        nbytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        _check_absent(destination)  # or what somebody has written meanwhile would be replaced
    table_nbytes = sum(table.nbytes for table in frozen_tables(frozen).values())
    return Export(destination, format, nbytes, table_nbytes, verified)


def export_run(
    run: LoadedRun,
    out: Path | str,
    *,
    format: Format = "safetensors",  # noqa: A002  # what the command line calls it
    verify: Path | str | None = None,
) -> Export:
    """Export a run that `cce.load_run` loaded: see `export_model`. `verify` is a data set with the run's columns."""
    data = None
    if verify is not None:
        from cce.data import PreparedData

        data = PreparedData.open(verify)
        if data.schema != run.schema:
            raise ValueError(f"verify must name data with the columns and ids of the run, but {verify} has others.")
    given: dict[str, Any] = {"format": format, "data": data}
    try:
        inputs = run.inputs
    except (ValueError, OSError) as error:  # its ids may never have been anything else
        return replace(export_model(run.model, run.schema, out, **given), missing=str(error))
    given |= {"raw": {"columns": asdict(inputs.columns), "reading": asdict(inputs.reading)}}
    return export_model(run.model, run.schema, out, vocabularies=inputs.vocabularies, **given)


def _write(path: Path, frozen: nn.Module, schema: Schema) -> None:
    """Write the model in the format that the file's name says."""
    if path.suffix == ".safetensors":
        write_bundle(path, frozen)
        return
    program = trace(ServedModel(frozen, schema), schema)
    if path.suffix == ".pt2":
        write_pt2(path, program)
    else:
        write_onnx(path, program, example_inputs(schema))


def load_program(path: Path, frozen: nn.Module, schema: Schema) -> Program:
    """What was written, ready to run; a bundle runs inside the frozen model, with its tables read by `numpy_reader`."""
    if path.suffix == ".onnx":
        return run_onnx(path)
    if path.suffix == ".pt2":
        with quiet_tracing():
            return torch.export.load(path).module()
    bundle = numpy_reader.open_bundle(path)
    memo = {id(table): _ReadTable(bundle.tables[name]) for name, table in frozen_tables(frozen).items()}
    return ServedModel(copy.deepcopy(frozen, memo), schema).eval()


class _ReadTable(nn.Module):
    """A table of a bundle, as a module."""

    def __init__(self, table: numpy_reader.Table) -> None:
        super().__init__()
        self.table = table
        self.embedding_dim, self.padding_idx = table.embedding_dim, table.spec["padding_idx"]

    def forward(self, ids: Tensor) -> Tensor:
        return torch.from_numpy(self.table.vectors(ids.numpy()))


def _for_inference(model: nn.Module) -> nn.Module:
    """The model on the CPU and in evaluation mode: itself, or a copy where it is in use elsewhere."""
    if not model.training and all(parameter.is_cpu for parameter in model.parameters()):
        return model
    return copy.deepcopy(model).cpu().eval()


def _check_call(frozen: nn.Module, schema: Schema) -> None:
    """Reject a model that does not take what a program of this schema takes."""
    inputs = example_inputs(schema)
    try:
        with torch.no_grad():
            logits = ServedModel(frozen, schema)(inputs)
        got = f"{type(logits).__name__} {tuple(getattr(logits, 'shape', ()))}"
    except Exception as error:  # noqa: BLE001  # whatever the code of a user's model raises
        logits, got = None, f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
    if not isinstance(logits, Tensor) or logits.shape != (EXAMPLE_ROWS,):
        rule = f"must take a cce.schema.Batch of the schema and give logits ({EXAMPLE_ROWS}) for {EXAMPLE_ROWS} rows"
        hint = "format 'safetensors' holds the tables of any model"
        raise TypeError(f"model {rule} to be exported as a program or verified, got {got}; {hint}.")


def _write_manifest(path: Path, made: dict[str, Any], schema: Schema, verified: Verification | None) -> None:
    inputs = {
        name: {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": ["batch", *tensor.shape[1:]]}
        for name, tensor in example_inputs(schema).items()
    }
    for feature in schema.features if schema.is_multi_hot else ():
        if feature.multi_hot:
            inputs[f"ids.{feature.name}"]["shape"] = ["ids"]
    content = {
        "version": VERSION,
        **made,
        "inputs": inputs,
        "output": OUTPUT,
        "schema": schema.to_dict(),
        "unseen": 0,
        "verification": None if verified is None else asdict(verified),
        "cce": __version__,
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _check_absent(path: Path) -> None:
    if path.exists():
        raise FileExistsError(f"out must not exist yet, got {path}.")


# -- does a program say what the trained model says? -------------------------------------------------------------------


def verify(program: Program, model: nn.Module, data: PreparedData, schema: Schema) -> Verification:
    """Compare a program with the trained model; a ValueError above the tolerance, or where logits are not finite."""
    split = next((name for name in ("test", "validation", "train") if name in data.splits and data.num_rows(name)), "")
    if not split:
        raise ValueError(f"data must have rows to verify with, got none in {data.path}.")
    num_rows, difference = _compare(program, model, data.loader(split, batch_size=BATCH, shuffle=False), schema)
    some = next(iter(data.loader(split, batch_size=BATCH, shuffle=False)))
    num_swept, swept = _compare(program, model, sweep(some, schema), schema)
    found = Verification(split, num_rows, num_swept, max(difference, swept))
    if not found.difference <= TOLERANCE:
        raise ValueError(f"verification failed: tolerance is {TOLERANCE:g}, got {found}.")
    return found


def sweep(rows: Batch, schema: Schema) -> Iterator[Batch]:
    """Rows whose ids go through every vocabulary, from the first id to the last; dense values are those of `rows`.

    A vocabulary with fewer ids than there are rows comes again and again, and of a larger one ids come evenly.
    """
    sizes = [feature.num_embeddings or SWEPT for feature in schema.features]
    num_rows = min(SWEPT, max(sizes))
    for start in range(0, num_rows, BATCH):
        steps = torch.arange(start, min(start + BATCH, num_rows))
        columns = [steps % n if n <= num_rows else steps * (n - 1) // (num_rows - 1) for n in sizes]
        dense, labels = rows.dense[steps % len(rows)], torch.zeros(len(steps))
        if not schema.is_multi_hot:
            yield Batch(dense, torch.stack(columns, dim=1), labels)
        else:
            yield Batch(dense, torch.cat(columns), labels, torch.arange(len(steps) * len(columns) + 1))


@torch.no_grad()
def _compare(program: Program, model: nn.Module, batches: Iterable[Batch], schema: Schema) -> tuple[int, float]:
    """Rows of all batches, and the largest difference of a logit."""
    num_rows, largest = 0, 0.0
    for batch in batches:
        expected, got = model(batch).float(), program(make_inputs(batch, schema)).float()
        if not bool(got.isfinite().all()):
            raise ValueError(f"logits must be finite, got NaN or infinity in rows {num_rows} to {num_rows + len(got)}.")
        largest = max(largest, float((got - expected).abs().max()))
        num_rows += len(got)
    return num_rows, largest
