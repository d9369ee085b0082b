"""Training rows that a refit passes over again and again: batches of a loader, or rows by number."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from cce.checks import check_range, check_type
from cce.collection import EmbeddingCollection
from cce.distributed import Ranks
from cce.embeddings import CCEEmbedding

if TYPE_CHECKING:
    from collections.abc import Callable

    from cce.reclustering.refit.hooks import Recorded
    from cce.schema import Batch

    Batches = Iterable[Any] | Callable[[], Iterable[Any]]
    Forward = Callable[[Any], tuple[Tensor, Any]]
    Loss = Callable[[Tensor, Any], Tensor]

GOLDEN, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # of SplitMix64
PASS_ROWS = 1 << 13  # that the model sees at a time, if rows are read by number
PROBABILITIES = "the model's outputs all lie in [0, 1], as after a sigmoid; the default loss takes logits."


class Rows(Protocol):
    """Training rows by number, as `PreparedData.rows("train")` gives them."""

    def __len__(self) -> int:
        """How many rows there are."""

    def fetch(self, rows: np.ndarray) -> Batch:
        """The rows with these numbers, in this order."""


@dataclass(frozen=True)
class Fold:
    """One of `num_folds` parts of the rows, chosen by a hash of the row's number."""

    part: int
    num_folds: int

    def __contains__(self, row: int) -> bool:
        return bool(self.mask(np.array([row]))[0])

    def mask(self, rows: np.ndarray) -> np.ndarray:
        """Which of the rows belong to it."""
        if self.num_folds == 1:
            return np.ones(len(rows), bool)
        mixed = (rows.astype(np.uint64) + np.uint64(1)) * GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * MIX
        mixed ^= mixed >> np.uint64(27)
        part = (mixed >> np.uint64(32)) * np.uint64(self.num_folds) >> np.uint64(32)
        found: np.ndarray = part == self.part
        return found

    def numbers(self, num_rows: int) -> np.ndarray:
        """The numbers of its rows among `num_rows`."""
        return np.flatnonzero(self.mask(np.arange(num_rows)))


ALL_ROWS, ALONE = Fold(0, 1), Ranks()


@dataclass(frozen=True)
class Selection:
    """The rows of one pass: those of a fold, of this process, and with an id of one block if rows have blocks."""

    fold: Fold = ALL_ROWS
    ranks: Ranks = ALONE
    blocks: np.ndarray | None = None  # of each row of this process
    block: int = 0

    def mask(self, numbers: np.ndarray) -> np.ndarray:
        """Which rows, numbered within this process, are selected."""
        chosen = self.fold.mask(numbers * self.ranks.world_size + self.ranks.rank)
        if self.blocks is not None:
            chosen &= self.blocks[numbers] == self.block
        return chosen


@dataclass
class Piece:
    """Some rows that go through the model together."""

    inputs: Any
    numbers: np.ndarray | None = None  # of the rows, within this process; None: not known before the model has run
    target: Any = None

    def __len__(self) -> int:
        return 0 if self.numbers is None else len(self.numbers)


class Source:
    """The rows of batches, numbered as they come.

    batches: an iterable, such as a DataLoader that does not shuffle, or a function that returns one.
    forward: a batch to the model's outputs and what the loss compares them with.
    loss: outputs and targets to the loss of each row; None: cross-entropy of logits.
    """

    def __init__(self, model: nn.Module, batches: Batches, *, forward: Forward | None, loss: Loss | None) -> None:
        if not callable(batches) and (isinstance(batches, Iterator) or not isinstance(batches, Iterable)):
            raise TypeError(
                f"batches must be iterable again and again, or a function that returns an iterator, got {batches!r}."
            )
        self.tables: Mapping[str, CCEEmbedding] = find_tables(model)  # by name
        self.batches, self.given_forward, self.given_loss = batches, forward, loss
        self.model, self.device = model, next(model.parameters()).device
        self.num_rows = 0  # known after the first pass
        self._can_select: bool | None = None  # whether rows of a batch can go through the model without the others
        self._seen = _Seen()
        self._checksums: dict[tuple[Fold, int], list[int]] = {}  # of a pass over each selection

    def __len__(self) -> int:
        return self.num_rows

    def pieces(self, selection: Selection) -> Iterator[Piece]:
        """The selected rows alone, about `PASS_ROWS` at a time; where a batch cannot be cut, all of its rows."""
        self._seen, waiting = _Seen(), list[Piece]()
        for batch in self.batches() if callable(self.batches) else self.batches:
            num_rows = _common_length(batch)
            if self._can_select is None and num_rows > 1:
                self._can_select = self._try_to_select(batch, num_rows)
            if not num_rows or not self._can_select:
                yield from _joined(waiting)
                yield Piece(batch)
                continue
            numbers = np.arange(self._seen.num_rows, self._seen.num_rows + num_rows)
            self._seen.num_rows += num_rows
            chosen = np.flatnonzero(selection.mask(numbers))
            if len(chosen):
                waiting.append(Piece(_take(batch, torch.from_numpy(chosen)), numbers[chosen]))
            if sum(len(piece) for piece in waiting) >= PASS_ROWS:
                yield from _joined(waiting)
        yield from _joined(waiting)
        self._end_pass(selection)

    def forward(self, piece: Piece) -> Tensor:
        """The model's outputs `(rows)`."""
        outputs, piece.target = (self.given_forward or self._forward)(piece.inputs)
        if not isinstance(outputs, Tensor):
            raise TypeError(
                f"model must give a Tensor of one output for each row, got {type(outputs).__name__}: "
                "forward=lambda batch: (outputs, targets) says which."
            )
        if outputs.dim() not in (1, 2) or outputs.numel() != len(outputs):
            shape = tuple(outputs.shape)
            raise ValueError(f"model must have one output for each row to be refitted, got outputs of shape {shape}.")
        return outputs.reshape(-1).float()

    def losses(self, outputs: Tensor, piece: Piece) -> Tensor:
        """The loss of each row."""
        losses = (self.given_loss or binary_cross_entropy)(outputs, piece.target)
        if losses.numel() != len(outputs):
            shape = tuple(losses.shape)
            raise ValueError(
                f"loss must give one value for each of {len(outputs)} rows (reduction='none'), got shape {shape}."
            )
        return losses.reshape(-1)

    def kept(self, piece: Piece, recorded: Recorded, selection: Selection) -> Tensor | None:
        """Which rows of a piece are selected; None: all. Asked once, when the piece was recorded."""
        num_rows = len(recorded.outputs)
        for name, found in ((name, found) for lookup in recorded.lookups for name, found in lookup.items()):
            if found.num_rows != num_rows:
                raise ValueError(
                    f"table {name!r} must be looked up with ids whose first dimension is that of the model's outputs, "
                    f"{num_rows}, got {found.num_rows}."
                )
        is_cut = piece.numbers is not None
        if piece.numbers is None:
            piece.numbers = np.arange(self._seen.num_rows, self._seen.num_rows + num_rows)
            self._seen.num_rows += num_rows
        self._seen.add(recorded)
        index, known = len(self._seen.checksums) - 1, self._checksums.get(_key(selection), [])
        if known and known[index : index + 1] != self._seen.checksums[-1:]:
            raise ValueError(
                f"batches must come in the same order in every pass, got other ids in batch {index}: "
                "a DataLoader must not shuffle, and a data set must not draw rows at random."
            )
        return None if is_cut else torch.from_numpy(selection.mask(piece.numbers))

    def _end_pass(self, selection: Selection) -> None:
        """Check a pass against the first one, which says what the others must be."""
        seen = self._seen
        if not seen.num_rows:
            raise ValueError("batches must have rows, got none.")
        if not self.num_rows and self.given_loss is None and seen.low >= 0 and seen.high <= 1:
            warnings.warn(PROBABILITIES, stacklevel=2)
        if self.num_rows and seen.num_rows != self.num_rows:
            raise ValueError(f"batches must have as many rows in every pass, {self.num_rows}, got {seen.num_rows}.")
        self.num_rows = seen.num_rows
        self._checksums.setdefault(_key(selection), seen.checksums)

    def _try_to_select(self, batch: Any, num_rows: int) -> bool:
        """Whether the outputs of some rows of a batch are the same without the others."""
        some = torch.arange(0, num_rows, 2)
        with torch.no_grad():
            whole = self.forward(Piece(batch))
            try:
                part = self.forward(Piece(_take(batch, some)))
            except Exception:  # noqa: BLE001  # a model may fail in any way on a batch that cannot be cut
                return False
        return len(whole) == num_rows and len(part) == len(some) and torch.allclose(whole[some], part, atol=1e-4)

    def _forward(self, batch: Any) -> tuple[Tensor, Any]:
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise TypeError(
                f"batches must be tuples of inputs and a target, got {type(batch).__name__}: "
                "forward=lambda batch: (outputs, targets) says how a batch goes through the model."
            )
        *inputs, target = _map_tensors(batch, lambda each: each.to(self.device))
        return self.model(*inputs), target


class FetchedRows(Source):
    """Rows by number, which a model with one `EmbeddingCollection` takes as a `Batch`. Tables have names of features.

    Of several processes each reads every `world_size`-th row.
    """

    def __init__(self, model: nn.Module, rows: Rows, loss: Callable[[Tensor, Batch], Tensor]) -> None:
        if not callable(getattr(rows, "fetch", None)) or not hasattr(rows, "__len__"):
            what = "an object with len(rows) and rows.fetch(numbers), as PreparedData.rows"
            check_type("rows", rows, type(None), what)
        check_range("number of rows", len(rows), 1, 2**63)
        self.model, self.rows, self.num_rows = model, rows, len(rows)
        self.given_loss, self.given_forward = loss, lambda batch: (model(batch), batch)
        tables = find_collection(model).tables.items()
        self.tables = {feature: table for feature, table in tables if isinstance(table, CCEEmbedding)}
        self.device = next(model.parameters()).device

    def pieces(self, selection: Selection) -> Iterator[Piece]:
        """Batches of the selected rows alone."""
        rank, world_size = selection.ranks.rank, selection.ranks.world_size
        own = np.arange(-(-(self.num_rows - rank) // world_size))
        own = own[selection.mask(own)]
        for start in range(0, len(own), PASS_ROWS):
            numbers = own[start : start + PASS_ROWS]
            yield Piece(self.rows.fetch(numbers * world_size + rank).to(self.device), numbers)

    def kept(self, piece: Piece, recorded: Recorded, selection: Selection) -> None:
        """All: no others were fetched."""


def cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """The binary cross-entropy of each row, times its weight if rows have weights."""
    return nn.functional.binary_cross_entropy_with_logits(logits, batch.labels, weight=batch.weights, reduction="none")


def binary_cross_entropy(outputs: Tensor, target: Any) -> Tensor:
    """Of logits and targets in [0, 1], for each row."""
    if not isinstance(target, Tensor) or target.numel() != len(outputs):
        found = tuple(target.shape) if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(f"targets must be a Tensor of {len(outputs)} values for the default loss, got {found}.")
    labels = target.reshape(-1).to(outputs)
    wrong = labels[(labels < 0) | (labels > 1)]
    if len(wrong):
        raise ValueError(f"targets must lie in [0, 1] for the default loss, got {wrong[0].item():g}.")
    return nn.functional.binary_cross_entropy_with_logits(outputs, labels, reduction="none")


def find_tables(model: nn.Module) -> dict[str, CCEEmbedding]:
    """The tables of a model that can be refitted, by name; all of its `cce` tables must be finalized."""
    tables = {name: module for name, module in model.named_modules() if isinstance(module, CCEEmbedding)}
    if not tables:
        raise ValueError('model must have tables of method "cce" to be refitted, got none.')
    rest = [name for name, table in tables.items() if not table.is_final]
    if rest:
        raise ValueError(f"tables must be finalized before they are refitted (cce.finalize), got int8 rows in {rest}.")
    return tables


def find_collection(model: nn.Module) -> EmbeddingCollection:
    """The one collection of a model."""
    found = [module for module in model.modules() if isinstance(module, EmbeddingCollection)]
    if len(found) != 1 or found[0].unified:
        what = "a unified one" if found and found[0].unified else str(len(found))
        raise ValueError(f"model must have one EmbeddingCollection with a table for each feature, got {what}.")
    return found[0]


@dataclass
class _Seen:
    """What came in one pass over the batches."""

    checksums: list[int] = field(default_factory=list)  # of the ids of each piece
    num_rows: int = 0
    low: float = torch.inf  # of the outputs
    high: float = -torch.inf

    def add(self, recorded: Recorded) -> None:
        """A piece."""
        checksum = 0
        for lookup in recorded.lookups:
            for found in lookup.values():
                checksum = zlib.crc32(
                    found.rows.numpy().data, zlib.crc32(found.ids.contiguous().numpy().data, checksum)
                )
        self.checksums.append(checksum)
        if len(recorded.outputs):
            low, high = recorded.outputs.aminmax()
            self.low, self.high = min(self.low, float(low)), max(self.high, float(high))


def _key(selection: Selection) -> tuple[Fold, int]:
    return selection.fold, -1 if selection.blocks is None else selection.block


def _map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Change the tensors of a batch, in tuples, lists and dictionaries too."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _map_tensors(each, change) for name, each in value.items()}
    return [_map_tensors(each, change) for each in value] if isinstance(value, tuple | list) else value


def _take(batch: Any, rows: Tensor) -> Any:
    return _map_tensors(batch, lambda each: each if len(rows) == len(each) else each[rows.to(each.device)])


def _joined(pieces: list[Piece]) -> Iterator[Piece]:
    """One piece of all that wait, of which none waits any longer."""
    if pieces:
        inputs = pieces[0].inputs if len(pieces) == 1 else _concatenate([piece.inputs for piece in pieces])
        numbers = np.concatenate([piece.numbers for piece in pieces if piece.numbers is not None])
        pieces.clear()
        yield Piece(inputs, numbers)


def _concatenate(batches: list[Any]) -> Any:
    first = batches[0]
    if isinstance(first, Tensor):
        return torch.cat(batches)
    if isinstance(first, Mapping):
        return {name: _concatenate([batch[name] for batch in batches]) for name in first}
    return [_concatenate(list(each)) for each in zip(*batches, strict=True)]


def _common_length(batch: Any) -> int:
    """The first dimension of all tensors of a batch, which must have nothing else to be cut into rows; else 0."""
    lengths: set[int] = set()

    def visit(value: Any) -> None:
        if isinstance(value, Mapping | tuple | list):
            for each in value.values() if isinstance(value, Mapping) else value:
                visit(each)
        else:
            lengths.add(len(value) if isinstance(value, Tensor) and value.dim() else 0)

    visit(batch)
    return lengths.pop() if len(lengths) == 1 else 0
