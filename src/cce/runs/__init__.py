"""Trained runs as products: loaded, packed into one file, used to predict raw rows and to write vectors."""

from cce.runs.evaluating import Evaluation
from cce.runs.loaded import LoadedRun, load_run
from cce.runs.packing import pack_run
from cce.runs.predicting import write_predictions
from cce.runs.vectors import values_file, write_values, write_vectors

__all__ = [
    "Evaluation",
    "LoadedRun",
    "load_run",
    "pack_run",
    "values_file",
    "write_predictions",
    "write_values",
    "write_vectors",
]
