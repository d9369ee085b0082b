"""`export_run`: the best model of a trained run, exported with its vocabularies and verified on a data set."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from cce.data import PreparedData
from cce.serving.exporting import Export, RawInputs, export_model
from cce.serving.onnx_program import OPSET

if TYPE_CHECKING:
    from pathlib import Path

    from cce.runs import LoadedRun
    from cce.serving.exporting import Format
    from cce.serving.freezing import Pointers
    from cce.serving.stored_rows import Codebook


def export_run(
    run: LoadedRun,
    out: Path | str,
    *,
    format: Format = "safetensors",  # noqa: A002  # what the command line calls it
    codebook: Codebook = "float32",
    pointers: Pointers = "packed",
    opset: int | None = None,
    verify: Path | str | None = None,
    tolerance: float | None = None,
) -> Export:
    """Export a run that `cce.load_run` loaded: see `export_model`. `verify` is a data set with the run's columns."""
    if opset is not None and format != "onnx":
        raise ValueError(f"opset goes with format 'onnx', got opset={opset} with format={format!r}.")
    if tolerance is not None and verify is None:
        raise ValueError(f"tolerance goes with verify, got tolerance={tolerance:g} without a data set.")
    data = None if verify is None else PreparedData.open(verify)
    if data is not None and data.schema != run.schema:
        raise ValueError(f"verify must name data with the columns and ids of the run, but {verify} has others.")
    return export_model(
        run.model,
        run.schema,
        out,
        format=format,
        codebook=codebook,
        pointers=pointers,
        opset=OPSET if opset is None else opset,
        raw=_raw_inputs(run),
        data=data,
        tolerance=tolerance,
    )


def _raw_inputs(run: LoadedRun) -> RawInputs:
    """The vocabularies of a run, or why it has none: its ids may never have been anything else."""
    try:
        inputs = run.inputs
    except (ValueError, OSError) as error:
        return RawInputs(missing=str(error))
    return RawInputs(inputs.vocabularies, {"columns": asdict(inputs.columns), "reading": asdict(inputs.reading)})
