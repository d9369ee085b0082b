"""Trained runs as products: loaded, packed into one file, used to predict raw rows and to write vectors."""

from cce.runs.evaluating import CalibrationCurve, Evaluation, calibrate
from cce.runs.functions import evaluate, predict, train
from cce.runs.history import RunHistory, read_history
from cce.runs.loaded import LoadedRun, load_run, run_folder
from cce.runs.neighbours import recommend, similar
from cce.runs.packing import pack_run
from cce.runs.predicting import write_predictions
from cce.runs.vectors import values_file, write_values, write_vectors

__all__ = [
    "CalibrationCurve",
    "Evaluation",
    "LoadedRun",
    "RunHistory",
    "calibrate",
    "evaluate",
    "load_run",
    "pack_run",
    "predict",
    "read_history",
    "recommend",
    "run_folder",
    "similar",
    "train",
    "values_file",
    "write_predictions",
    "write_values",
    "write_vectors",
]
