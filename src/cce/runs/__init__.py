"""Trained runs as products: loaded, packed into one file, used to predict raw rows and to write vectors."""

from cce.runs.evaluating import Evaluation, write_predictions
from cce.runs.loaded import (
    LoadedRun,
    RunHistory,
    evaluate,
    load_run,
    pack_run,
    predict,
    read_history,
    run_folder,
    train,
)
from cce.runs.vectors import recommend, similar, values_file, write_values, write_vectors
