"""The most frequent values of a feature, and the values whose vectors lie nearest to theirs, by cosine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from cce.checks import check_range

if TYPE_CHECKING:
    from cce.data import Vocabulary
    from cce.runs.loaded import LoadedRun

NUM_IDS, NUM_NEIGHBOURS = 12, 5
NUM_CANDIDATES = 4096  # ids are numbered by falling count: these are the most frequent ones
BLOCK = 1024  # candidates at a time


@dataclass(frozen=True)
class Neighbours:
    """A value with its id, and the nearest other values with their cosines, the nearest first."""

    id: int
    value: str
    nearest: tuple[tuple[str, float], ...]


def nearest_values(
    run: LoadedRun,
    feature: str,
    *,
    num_ids: int = NUM_IDS,
    num_neighbours: int = NUM_NEIGHBOURS,
    num_candidates: int = NUM_CANDIDATES,
) -> list[Neighbours]:
    """The neighbours of the `num_ids` most frequent values of a feature, among its `num_candidates` most frequent."""
    for name, given in {"num_ids": num_ids, "num_neighbours": num_neighbours, "num_candidates": num_candidates}.items():
        check_range(name, given, 1, 2**31)
    vectors, vocabulary = run.vectors(feature), run.vocabularies[feature]
    size = min(vectors.shape[0] - 1, num_candidates)  # id 0 is no value
    wanted = _unit(vectors(torch.arange(1, min(size, num_ids) + 1)))
    starts = range(1, size + 1, BLOCK)
    blocks = [wanted @ _unit(vectors(torch.arange(start, min(start + BLOCK, size + 1)))).T for start in starts]
    cosines = np.concatenate([np.zeros((len(wanted), 0)), *blocks], axis=1)
    np.fill_diagonal(cosines, -np.inf)  # nobody is a neighbour of their own
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(num_neighbours, size - 1)]
    values = _texts(vocabulary, np.arange(len(wanted)))
    found = (zip(_texts(vocabulary, near), cosines[row, near].tolist(), strict=True) for row, near in enumerate(order))
    return [
        Neighbours(row + 1, value, tuple(pairs)) for row, (value, pairs) in enumerate(zip(values, found, strict=True))
    ]


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1; zero stays zero, and has cosine 0 with all."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


def _texts(vocabulary: Vocabulary, rows: np.ndarray) -> list[str]:
    """The values of ids, whose first is in row 0."""
    return [str(value) for value in vocabulary.values(rows + 1)]
