"""A trained model where it is used: frozen, exported, and read without this package. Names are loaded when used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.lazy import lazy_names

if TYPE_CHECKING:
    from cce.serving import numpy_deltas, numpy_reader
    from cce.serving.deltas import DeltaReport, TableDelta, apply_delta, delta
    from cce.serving.exporting import Export, export_model, export_run
    from cce.serving.freezing import freeze, freeze_table, write_bundle
    from cce.serving.frozen_tables import FrozenTable

FORMAT_NAMES = ("safetensors", "pt2", "onnx")

__getattr__, __dir__ = lazy_names(__name__)
