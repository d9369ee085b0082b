"""Training rows that a refit passes over again and again: by number here, or from a loader in `batches.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from cce.checks import check_range, check_type
from cce.collection import EmbeddingCollection
from cce.distributed import Ranks, sum_over_ranks
from cce.embeddings import CCEEmbedding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cce.reclustering.refit.hooks import LookupHooks, Recorded
    from cce.schema import Batch

GOLDEN, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # of SplitMix64
READ_ROWS = 1 << 16  # at a time, while ids are counted


class Rows(Protocol):
    """Training rows by number, as `PreparedData.rows("train")` gives them."""

    def __len__(self) -> int:
        """How many rows there are."""

    def fetch(self, rows: np.ndarray) -> Batch:
        """The rows with these numbers, in this order."""


@dataclass(frozen=True)
class Fold:
    """One of `num_folds` parts of the rows, which a hash of the row's number decides."""

    part: int
    num_folds: int

    def __contains__(self, row: int) -> bool:
        return bool(self.mask(np.array([row]))[0])

    def mask(self, rows: np.ndarray) -> np.ndarray:
        """Which of the rows belong to it."""
        mixed = (rows.astype(np.uint64) + np.uint64(1)) * GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * MIX
        mixed ^= mixed >> np.uint64(27)
        part = (mixed >> np.uint64(32)) * np.uint64(self.num_folds) >> np.uint64(32)
        found: np.ndarray = part == self.part
        return found

    def numbers(self, num_rows: int) -> np.ndarray:
        """The numbers of its rows, of so many."""
        return np.flatnonzero(self.mask(np.arange(num_rows)))


ALL_ROWS, ALONE = Fold(0, 1), Ranks()


@dataclass(frozen=True)
class Selection:
    """The rows of one pass: those of a fold, of one process, and of ids of one block if rows have blocks."""

    fold: Fold = ALL_ROWS
    ranks: Ranks = ALONE
    blocks: np.ndarray | None = None  # of the rows
    block: int = 0

    def numbers(self, num_rows: int, size: int) -> Iterator[np.ndarray]:
        """The numbers of the rows, those of `size` rows at a time; of several processes each has a share of them."""
        if self.blocks is not None:
            chosen = np.flatnonzero(self.blocks == self.block)
            yield from (chosen[start : start + size] for start in range(0, len(chosen), size))
            return
        size *= self.ranks.world_size
        for start in range(0, num_rows, size):
            numbers = np.arange(start, min(start + size, num_rows))
            numbers = numbers if self.fold.num_folds == 1 else numbers[self.fold.mask(numbers)]
            numbers = numbers[self.ranks.rank :: self.ranks.world_size]
            if len(numbers):
                yield numbers

    def mask(self, numbers: np.ndarray) -> np.ndarray:
        """Which of a process's own rows, numbered from 0, are among them."""
        if self.blocks is not None:
            chosen: np.ndarray = self.blocks[numbers] == self.block
            return chosen
        return self.fold.mask(numbers * self.ranks.world_size + self.ranks.rank)


@dataclass
class Piece:
    """Some rows that go through the model together."""

    inputs: Any
    numbers: np.ndarray | None = None  # of the rows; of a loader's rows they are known when the model has seen them
    target: Any = None


class Source(ABC):
    """Training rows, how they go through the model, and what they lose."""

    tables: Mapping[str, CCEEmbedding]  # by name

    @abstractmethod
    def __len__(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def pieces(self, selection: Selection, size: int) -> Iterator[Piece]:
        """All rows of a selection, about `size` at a time, and perhaps others, which `kept` tells apart."""

    @abstractmethod
    def forward(self, piece: Piece) -> Tensor:
        """The model's outputs `(rows)`."""

    @abstractmethod
    def look_up(self, piece: Piece) -> Tensor:
        """Let the tables see the ids of the rows, with or without the rest of the model."""

    @abstractmethod
    def losses(self, outputs: Tensor, piece: Piece) -> Tensor:
        """The loss of each row."""

    @abstractmethod
    def kept(self, piece: Piece, recorded: Recorded, selection: Selection) -> Tensor | None:
        """Which rows of a piece are selected; None: all. Asked once, when the piece was recorded."""


class FetchedRows(Source):
    """Rows by number, which a model takes as a `Batch`."""

    def __init__(self, model: nn.Module, rows: Rows, loss: Callable[[Tensor, Batch], Tensor]) -> None:
        if not callable(getattr(rows, "fetch", None)) or not hasattr(rows, "__len__"):
            what = "an object with len(rows) and rows.fetch(numbers), as PreparedData.rows"
            check_type("rows", rows, type(None), what)
        check_range("number of rows", len(rows), 1, 2**63)
        self.model, self.rows, self.loss = model, rows, loss
        self.collection = find_collection(model)
        tables = self.collection.tables.items()
        self.tables = {feature: table for feature, table in tables if isinstance(table, CCEEmbedding)}
        self.device = next(model.parameters()).device

    def __len__(self) -> int:
        return len(self.rows)

    def pieces(self, selection: Selection, size: int) -> Iterator[Piece]:
        """Batches of the selected rows."""
        for numbers in selection.numbers(len(self.rows), size):
            yield Piece(self.rows.fetch(numbers).to(self.device), numbers)

    def forward(self, piece: Piece) -> Tensor:
        """Logits `(rows)`."""
        return self.model(piece.inputs).float()  # type: ignore[no-any-return]

    def look_up(self, piece: Piece) -> Tensor:
        """Vectors alone: the rest of the model need not run."""
        return self.collection(piece.inputs.ids, piece.inputs.offsets)  # type: ignore[no-any-return]

    def losses(self, outputs: Tensor, piece: Piece) -> Tensor:
        """The loss of each row."""
        return self.loss(outputs, piece.inputs)

    def kept(self, piece: Piece, recorded: Recorded, selection: Selection) -> None:
        """All: no others were fetched."""


def cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """The binary cross-entropy of each row, times its weight if rows have weights."""
    return nn.functional.binary_cross_entropy_with_logits(logits, batch.labels, weight=batch.weights, reduction="none")


def find_collection(model: nn.Module) -> EmbeddingCollection:
    """The one collection of a model."""
    found = [module for module in model.modules() if isinstance(module, EmbeddingCollection)]
    if len(found) != 1 or found[0].unified:
        what = "a unified one" if found and found[0].unified else str(len(found))
        raise ValueError(f"model must have one EmbeddingCollection with a table for each feature, got {what}.")
    return found[0]


def look_through(
    source: Source, hooks: LookupHooks, selection: Selection
) -> Iterator[tuple[Piece, Recorded, Tensor | None]]:
    """The ids of all rows of a selection, and which rows of a piece these are."""
    with hooks.attached():
        for piece in source.pieces(selection, READ_ROWS):
            recorded = hooks.record(partial(source.look_up, piece))
            yield piece, recorded, source.kept(piece, recorded, selection)


def count_ids(
    source: Source, hooks: LookupHooks, num_ids: Mapping[str, int], selection: Selection
) -> dict[str, Tensor]:
    """In how many of the selected rows each id occurs, for tables by their name and number of ids."""
    counts = {name: torch.zeros(size, dtype=torch.int64) for name, size in num_ids.items()}
    for _, recorded, kept in look_through(source, hooks, selection):
        for name, count in counts.items():
            _, ids = recorded.pairs(name, kept)
            count.add_(torch.bincount(ids, minlength=len(count)))
    return {name: sum_over_ranks(count, selection.ranks) for name, count in counts.items()}


def blocks_of_rows(
    source: Source, hooks: LookupHooks, name: str, blocks: np.ndarray, selection: Selection
) -> np.ndarray | None:
    """For each row the block of its id, `blocks[id]`, if it is selected; else the largest value.

    None if a row has several ids of the table, which may be of several blocks.
    """
    found = np.full(len(source), np.iinfo(blocks.dtype).max, blocks.dtype)
    for piece, recorded, kept in look_through(source, hooks, selection):
        if not recorded.is_single(name):
            return None
        rows, ids = recorded.pairs(name, kept)
        assert piece.numbers is not None
        found[piece.numbers[rows.numpy()]] = blocks[ids.numpy()]
    return found
