"""The vectors of a feature, for retrieval: one row for each id in a `.npy` file, and the raw values beside it.

Both are written block by block: neither the table nor the vocabulary is ever in memory as a whole.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from cce.collection import EmbeddingCollection
from cce.files import replace_file

if TYPE_CHECKING:
    from cce.data import Vocabulary
    from cce.schema import Schema

BLOCK = 1 << 16  # ids at a time
ENDING, VALUES = ".npy", ".values.parquet"


class FeatureVectors:
    """The vectors of one feature of a model: `vectors(ids)` gives those of some ids, float32."""

    def __init__(self, model: nn.Module, schema: Schema, feature: str) -> None:
        names = [each.name for each in schema.features]
        if feature not in names:
            near = difflib.get_close_matches(feature, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"the features are {', '.join(names)}."
            raise ValueError(f"feature must be one of the run's, got {feature!r}: {hint}")
        collections = (module for module in model.modules() if isinstance(module, EmbeddingCollection))
        tables = next((each for each in collections if feature in each.features), None)
        if tables is None:
            raise ValueError(f"model must have its tables in an EmbeddingCollection, got none with {feature!r}.")
        sizes = list(tables.features.values())
        self.table = tables.tables["all" if tables.unified else feature]
        self.first = sum(sizes[: names.index(feature)]) if tables.unified else 0
        self.shape = (tables.features[feature], tables.embedding_dim)

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> np.ndarray:
        """The vectors `(n, embedding_dim)` of ids `(n)`."""
        device = next(self.table.parameters()).device
        return np.ascontiguousarray(self.table((ids + self.first).to(device)).float().cpu().numpy())


def values_file(out: Path) -> Path:
    """The file of raw values beside a file of vectors."""
    return out.with_name(out.name.removesuffix(ENDING) + VALUES)


def write_vectors(vectors: FeatureVectors, out: Path, *, progress: bool) -> None:
    """Write the vectors of all ids, row after row, whole or not at all."""
    size, dim = vectors.shape
    header = {"descr": "<f4", "fortran_order": False, "shape": (size, dim)}
    with replace_file(out) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in _starts(size, "vectors", progress=progress):
            ids = torch.arange(start, min(start + BLOCK, size))
            file.write(vectors(ids).astype("<f4", copy=False).tobytes())


def write_values(vocabulary: Vocabulary, out: Path, *, progress: bool) -> None:
    """Write the value of each id, whole or not at all; that of id 0, unseen, is null; a missing value is ""."""
    from cce.data import TableWriter

    size = len(vocabulary) + 1
    with replace_file(out) as temporary, TableWriter(temporary, {"id": "int64", "value": "string"}) as table:
        for start in _starts(size, "values", progress=progress):
            ids = np.arange(start, min(start + BLOCK, size))
            table.write({"id": ids, "value": vocabulary.values(ids)})


def _starts(size: int, name: str, *, progress: bool) -> tqdm[int]:
    return tqdm(range(0, size, BLOCK), name, unit="block", leave=False, disable=None if progress else True)
