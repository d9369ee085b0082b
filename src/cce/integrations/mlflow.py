"""MLflow. The only file that imports it. Where it sends to is set by its own variables (MLFLOW_TRACKING_URI)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow

from cce.files import write_atomic

NAME = "mlflow.json"  # in the folder of the run: which run of theirs it is


class MlflowLogger:
    """A run of theirs, which a resumed run of ours goes on with."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self._client: Any = mlflow.MlflowClient()
        known = folder / NAME
        if known.exists():
            self._id = json.loads(known.read_text())["id"]
            return
        experiment = mlflow.set_experiment("cce")
        self._id = self._client.create_run(experiment.experiment_id, run_name=folder.name).info.run_id
        for name, value in config.items():
            self._client.log_param(self._id, name, value)
        write_atomic(known, json.dumps({"id": self._id}))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send some numbers. They keep no @ in names."""
        for name, value in values.items():
            self._client.log_metric(self._id, name.replace("@", "_at_"), value, step=step)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._id)


def open_logger(folder: Path, *, step: int, config: dict[str, Any]) -> MlflowLogger:
    """The run of a folder."""
    del step
    return MlflowLogger(folder, config)
