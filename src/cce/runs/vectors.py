"""The vectors of a feature, for retrieval, in files beside their raw values; and recommendations from them.

Files are written block by block: neither the table nor the vocabulary is ever in memory as a whole. Recommendations
take and give raw values. A value that training did not see has no vector of its own: `unseen` says what it gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from tqdm import tqdm

from cce.checks import check_choice, check_range
from cce.collection import EmbeddingCollection
from cce.data import Vocabulary, join_bags
from cce.files import replace_file
from cce.runs.evaluating import BATCH_SIZE, predict_batches
from cce.schema import Batch, Schema

if TYPE_CHECKING:
    from cce.runs.loaded import LoadedRun

Scored = list[tuple[str, float]]  # values with their scores, the best first
UNSEEN = ("shared", "average")  # the vector of a value that training did not see: that of id 0, or the mean of all
BLOCK = 1 << 16  # ids at a time
ENDING, VALUES = ".npy", ".values.parquet"


class FeatureVectors:
    """The vectors of one feature of a model: `vectors(ids)` gives those of some ids, float32."""

    def __init__(self, model: nn.Module, schema: Schema, feature: str) -> None:
        names = [each.name for each in schema.features]
        check_choice("feature", feature, names)
        collections = (module for module in model.modules() if isinstance(module, EmbeddingCollection))
        tables = next((each for each in collections if feature in each.features), None)
        if tables is None:
            raise ValueError(f"model must have its tables in an EmbeddingCollection, got none with {feature!r}.")
        if tables.features[feature] is None:
            raise ValueError(
                f"feature must have a vocabulary to list its vectors, and {feature!r} takes any 64-bit id."
            )
        sizes = list(tables.features.values())
        self.tables = tables
        self.table = tables.tables["all" if tables.unified else feature]
        self.first = sum(sizes[: names.index(feature)]) if tables.unified else 0
        self.shape = (tables.features[feature], tables.embedding_dim)

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> np.ndarray:
        """The vectors `(n, embedding_dim)` of ids `(n)`."""
        device = next(self.table.parameters()).device
        return np.ascontiguousarray(self.table((ids + self.first).to(device)).float().cpu().numpy())


def values_file(out: Path) -> Path:
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


# -- recommendations --------------------------------------------------------------------------------------------------


def recommend(run: LoadedRun, row: Any, n: int, *, item: str | None, unseen: str = "shared") -> Scored:
    """The `n` values of the feature `item` with the highest probability in a row that has everything else."""
    check_range("n", n, 1, 2**31)
    check_choice("unseen", unseen, UNSEEN)
    names = [feature.name for feature in run.schema.features]
    if item is None and len(names) != 2:
        raise ValueError(f"item must name the feature to recommend, one of {', '.join(names)}.")
    item = names[1] if item is None else item
    check_choice("item", item, [feature.name for feature in run.schema.features if not feature.multi_hot])
    if not isinstance(row, Mapping):
        if len(names) != 2:
            raise TypeError(f"user must be a dictionary of the columns of a row, as there are {len(names)} features.")
        row = {next(name for name in names if name != item): row}
    encoder = run.inputs.encoder(run.schema)
    known = dict.fromkeys(encoder.raw_rows.columns.used)
    for name in row:
        check_choice("a column of the row", name, known)
    (batch,) = encoder.batches([known | dict(row)], batch_size=1)
    ids = _value_ids(run, item)
    with ExitStack() as stack:
        for name, own in zip(names, _ids_of_row(batch), strict=True):
            if unseen == "average" and name != item and own.tolist() == [0]:
                stack.enter_context(_with_average(run, name))
        blocks = list(predict_batches(run.model, _with_items(batch, names.index(item), ids), progress=False))
    scores = np.concatenate([np.zeros(0, np.float32), *blocks])
    best = np.argsort(-scores, kind="stable")[:n]
    return _named(run, item, ids[best], scores[best])


def similar(
    run: LoadedRun, feature: str, values: Sequence[Any], n: int, *, unseen: str = "shared", among: int | None = None
) -> list[Scored]:
    """For each value, the `n` others whose vectors have the greatest cosine with its own.

    among: only the most frequent values are compared; all of them by default.
    """
    check_range("n", n, 1, 2**31)
    check_choice("unseen", unseen, UNSEEN)
    vectors, ids = run.vectors(feature), _value_ids(run, feature)
    wanted = run.vocabularies[feature].find([str(value) for value in values])
    own = vectors(torch.from_numpy(wanted))
    if not wanted.all():
        first = values[int(np.flatnonzero(wanted == 0)[0])]
        if unseen == "shared":
            hint = "unseen='average' gives it the mean vector"
            raise ValueError(f"value must be one that training rows have, got {first!r} of {feature!r}; {hint}.")
        own[wanted == 0] = _average(vectors, ids)
    ids = ids[:among]
    cosines = _cosines(vectors, own, ids)
    cosines[wanted[:, None] == ids] = -np.inf  # nothing is a neighbour of its own
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :n]
    nearest = [near[np.isfinite(cosines[row, near])] for row, near in enumerate(order)]
    return [_named(run, feature, ids[near], cosines[row, near]) for row, near in enumerate(nearest)]


def _value_ids(run: LoadedRun, feature: str) -> np.ndarray:
    """The ids of all values of a feature; 0 is none, and neither is that of missing ones."""
    check_choice("feature", feature, run.vocabularies)
    vocabulary = run.vocabularies[feature]
    if vocabulary.bits is not None:
        raise ValueError(f"feature must have a vocabulary to name its values, and ids of {feature!r} are hashes.")
    ids = np.arange(1, len(vocabulary) + 1)
    found: np.ndarray = ids[ids != vocabulary.find([""])[0]]
    return found


def _ids_of_row(batch: Batch) -> tuple[Tensor, ...]:
    """The ids of each feature of a batch of one row."""
    return batch.ids.unbind(1) if batch.offsets is None else torch.tensor_split(batch.ids, batch.offsets[1:-1])


def _with_average(run: LoadedRun, feature: str) -> RemovableHandle:
    """Until it is removed, all rows have the mean vector of a feature instead of their own."""
    vectors = run.vectors(feature)
    index = list(vectors.tables.features).index(feature)
    average = torch.from_numpy(_average(vectors, _value_ids(run, feature)))

    def replace_vectors(tables: nn.Module, inputs: Any, found: Tensor) -> Tensor:
        del tables, inputs
        changed = found.clone()
        changed[:, index] = average.to(found)
        return changed

    return vectors.tables.register_forward_hook(replace_vectors)


def _average(vectors: FeatureVectors, ids: np.ndarray) -> np.ndarray:
    blocks = (vectors(torch.from_numpy(ids[i : i + BLOCK])) for i in range(0, len(ids), BLOCK))
    total: np.ndarray = sum((block.sum(axis=0) for block in blocks), np.zeros(vectors.shape[1], np.float32))
    return total / max(len(ids), 1)


def _with_items(batch: Batch, column: int, ids: np.ndarray) -> Iterator[Batch]:
    """The row of a batch, again and again with other ids of one feature."""
    for start in range(0, len(ids), BATCH_SIZE):
        some = ids[start : start + BATCH_SIZE]
        count = len(some)
        labels, dense = batch.labels.expand(count), batch.dense.expand(count, -1)
        if batch.offsets is None:
            rows = batch.ids.repeat(count, 1)
            rows[:, column] = torch.from_numpy(some)
            yield replace(batch, ids=rows, labels=labels, dense=dense)
            continue
        bags = [piece.numpy() for piece in _ids_of_row(batch)]
        columns = [(np.tile(bag, count), np.full(count, len(bag))) for bag in bags]
        columns[column] = (some, np.ones(count, np.int64))
        flat, offsets = join_bags(columns)
        yield replace(batch, ids=torch.from_numpy(flat), offsets=torch.from_numpy(offsets), labels=labels, dense=dense)


def _cosines(vectors: FeatureVectors, own: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Of some vectors with those of ids, `(own, ids)`."""
    units = _unit(own)
    blocks = [units @ _unit(vectors(torch.from_numpy(ids[i : i + BLOCK]))).T for i in range(0, len(ids), BLOCK)]
    return np.concatenate([np.zeros((len(own), 0), np.float32), *blocks], axis=1)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1; zero stays zero, and has cosine 0 with all."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def _named(run: LoadedRun, feature: str, ids: np.ndarray, scores: np.ndarray) -> Scored:
    names = [str(value) for value in run.vocabularies[feature].values(ids)]
    return list(zip(names, scores.tolist(), strict=True))
