"""`export_run`: the best model of a trained run, exported with its vocabularies and verified on a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.data import PreparedData
from cce.runs import load_run
from cce.serving.exporting import Export, export_model
from cce.serving.onnx_program import OPSET

if TYPE_CHECKING:
    from pathlib import Path

    from cce.serving.exporting import Format
    from cce.serving.freezing import Pointers
    from cce.serving.stored_rows import Codebook


def export_run(
    path: Path | str,
    out: Path | str,
    *,
    format: Format = "safetensors",  # noqa: A002  # what the command line calls it
    codebook: Codebook = "float32",
    pointers: Pointers = "packed",
    opset: int | None = None,
    verify: Path | str | None = None,
    tolerance: float | None = None,
    model: str | None = None,
    trust_model: bool = False,
) -> Export:
    """Export a run: see `export_model`. `verify` is the folder of a data set with the columns of the run.

    model, trust_model: code that is not of this package is run only if it is given again, or trusted.
    """
    if opset is not None and format != "onnx":
        raise ValueError(f"opset goes with format 'onnx', got opset={opset} with format={format!r}.")
    if tolerance is not None and verify is None:
        raise ValueError(f"tolerance goes with verify, got tolerance={tolerance:g} without a data set.")
    data = None if verify is None else PreparedData.open(verify)
    run = load_run(path, model=model, trust_model=trust_model)
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
        vocabularies=getattr(run, "vocabularies", None),
        data=data,
        tolerance=tolerance,
    )
