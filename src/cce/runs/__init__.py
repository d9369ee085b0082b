"""Trained runs as products: loaded, packed into one file, used to predict raw rows and to write vectors."""

from cce.runs.calibrating import CalibrationCurve, calibrate
from cce.runs.evaluating import Evaluation
from cce.runs.history import RunHistory, read_history
from cce.runs.loaded import LoadedRun, load_run, run_folder
from cce.runs.neighbours import Neighbours, nearest_values
from cce.runs.packing import pack_run
from cce.runs.predicting import write_predictions
from cce.runs.vectors import values_file, write_values, write_vectors

__all__ = [
    "CalibrationCurve",
    "Evaluation",
    "LoadedRun",
    "Neighbours",
    "RunHistory",
    "calibrate",
    "load_run",
    "nearest_values",
    "pack_run",
    "read_history",
    "run_folder",
    "values_file",
    "write_predictions",
    "write_values",
    "write_vectors",
]
