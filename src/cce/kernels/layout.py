"""What a lookup must know of a table, in words (`Layout`) and as the numbers that compiled loops follow (`Program`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from cce.compiled.memory import RUNS, longest_run
from cce.indexing.sources import Slot, SlotKind, describe
from cce.kernels import compiled_lookup as table_of
from cce.kernels import compiled_rows as slot_table
from cce.kernels.compiled_merge import CHUNK
from cce.kernels.compiled_rows import BLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce.indexing.facts import Versioned
    from cce.indexing.sources import RowSource

Array = np.ndarray[Any, Any]
Form = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]

Share = list[tuple[Form, Array, Array]]  # features of a form, and units of work on them

MAX_ROWS = 2**31  # rows are named by int32
SHORT_TERMS, SHORT_COLUMNS = (1, 2), (1, 2, 4)  # numbers for which loops of their own are compiled


@dataclass(frozen=True)
class Layout:
    """A table `T = H · M` of `num_embeddings` ids, without its M.

    A vector is `columns` pieces of `width` numbers side by side; a piece is the sum of `terms` rows of the codebook,
    which `sources` name, slot by slot: all terms of the first column, then of the second, and so on.
    """

    num_embeddings: int
    columns: int
    terms: int
    width: int
    num_rows: int  # of the codebook
    sources: Sequence[RowSource]
    padding_idx: int | None = None

    @property
    def dim(self) -> int:
        """Numbers of a vector."""
        return self.columns * self.width

    @property
    def num_slots(self) -> int:
        """Rows that an id adds up, over all columns."""
        return self.columns * self.terms

    @property
    def splits_by_column(self) -> bool:
        """Whether no two columns share a row, so that their gradients can be summed side by side."""
        entries = describe(self.sources)
        columns = [entries[first : first + self.terms] for first in range(0, len(entries), self.terms)]
        spans = sorted((min(e.first_row for e in c), max(e.first_row + e.num_rows for e in c)) for c in columns)
        return all(end <= start for (_, end), (start, _) in pairwise(spans))

    @property
    def apart(self) -> Layout:
        """The same with every term as a column of its own."""
        return replace(self, columns=self.num_slots, terms=1)

    @property
    def form(self) -> Form:
        """What compiled loops are made for: see `compiled_sums`."""
        run = longest_run(self.width)
        if run != self.width or self.terms not in SHORT_TERMS or self.columns not in SHORT_COLUMNS:
            return RUNS[run], (), (), RUNS[longest_run(self.dim)]
        return RUNS[run], (0,) * self.terms, (0,) * self.columns, RUNS[longest_run(self.dim)]


class Program:
    """Several layouts in numbers: `features` and `slots`, and which features are alike (`groups`).

    Addresses are those of the moment; the tensors behind them are kept alive in `facts`.
    """

    def __init__(self, layouts: Sequence[Layout], names: Sequence[str] = (), watched: Sequence[Versioned] = ()) -> None:
        self._watched, self._versions = watched, [module.version for module in watched]
        self.layouts = tuple(layouts)
        self.names = tuple(names)
        self.num_features = len(self.layouts)
        self.dim = sum(layout.dim for layout in layouts)
        self.shapes = [(layout.num_rows, layout.width) for layout in layouts]  # of the codebooks
        self.num_slots = [layout.num_slots for layout in layouts]
        self.most_slots = max(self.num_slots)
        self.facts: list[Tensor] = []
        self.slots = np.array([numbers for layout in layouts for numbers in self._slot_numbers(layout)], dtype=np.int64)
        self.facts = list({id(fact): fact for fact in self.facts}.values())
        self._addresses = [fact.data_ptr() for fact in self.facts]
        self.groups = self._groups()
        self.largest_dim = max(layout.dim for layout in layouts)
        self._shares: dict[int, list[Share]] = {}
        self._placed: tuple[list[int], list[tuple[Form, Array]]] | None = None
        self._starts: tuple[int, tuple[Array, int]] | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether nothing was set on a watched module, and facts lie where they did.

        A tensor that is sent to another process moves to shared memory.
        """
        is_same = [module.version for module in self._watched] == self._versions
        return is_same and [fact.data_ptr() for fact in self.facts] == self._addresses

    def room(self, item: int) -> int:
        """Bytes of the vectors of a chunk of ids of any feature, in numbers of `item` bytes."""
        return CHUNK * self.largest_dim * item

    def placed(self, codebooks: Sequence[Tensor]) -> list[tuple[Form, Array]]:
        """The groups, with the addresses of codebooks filled in; those of the last time are remembered."""
        addresses = [codebook.data_ptr() for codebook in codebooks]
        known = self._placed
        if known is None or known[0] != addresses:
            for codebook in codebooks:
                _check_memory(codebook)
            groups = [(form, features.copy()) for form, features in self.groups]
            for _, features in groups:
                features[:, table_of.CODEBOOK] = [addresses[place] for place in features[:, table_of.PLACE]]
            known = self._placed = (addresses, groups)
        return known[1]

    def starts(self, batch: int) -> tuple[Array, int]:
        """`row_starts` for one id an example; those of the last batch are remembered."""
        known = self._starts
        if known is None or known[0] != batch:
            known = self._starts = (batch, row_starts(self, [batch] * self.num_features))
        return known[1]

    def shares(self, num_threads: int) -> list[Share]:
        """The work of a backward pass, cut into as many shares of features, or of some of their columns."""
        if num_threads not in self._shares:
            self._shares[num_threads] = self._cut(num_threads)
        return self._shares[num_threads]

    def _cut(self, num_threads: int) -> list[Share]:
        units = [
            (layout.terms * columns * layout.width, group, place, first, columns)
            for group, (_, features) in enumerate(self.groups)
            for place, feature in enumerate(features[:, table_of.PLACE])
            for layout in [self.layouts[feature]]
            for first, columns in _column_ranges(layout, num_threads if self.num_features < num_threads else 1)
        ]
        loads = [0] * max(1, min(num_threads, len(units)))
        shares: list[dict[tuple[int, int], list[list[int]]]] = [{} for _ in loads]
        for cost, group, place, first, columns in sorted(units, key=lambda unit: -unit[0]):
            lightest = loads.index(min(loads))
            loads[lightest] += cost
            shares[lightest].setdefault((group, columns), []).append([place, first, columns])
        return [
            [
                (
                    _form_of(self.groups[group][0], columns, self.groups[group][1]),
                    self.groups[group][1],
                    np.array(rows, dtype=np.int64),
                )
                for (group, columns), rows in share.items()
            ]
            for share in shares
        ]

    def _groups(self) -> list[tuple[Form, Array]]:
        """The features of each form, as rows of numbers."""
        groups: dict[Form, list[list[int]]] = {}
        out, first_slot = 0, 0
        for place, layout in enumerate(self.layouts):
            row = [0] * table_of.NUM_FEATURE_COLUMNS
            row[table_of.PLACE] = place
            row[table_of.NUM_EMBEDDINGS] = layout.num_embeddings
            row[table_of.PADDING] = -1 if layout.padding_idx is None else layout.padding_idx
            row[table_of.COLUMNS], row[table_of.TERMS] = layout.columns, layout.terms
            row[table_of.WIDTH], row[table_of.OUT], row[table_of.FIRST_SLOT] = layout.width, out, first_slot
            groups.setdefault(layout.form, []).append(row)
            out += layout.dim
            first_slot += layout.num_slots
        return [(form, np.array(rows, dtype=np.int64)) for form, rows in groups.items()]

    def _slot_numbers(self, layout: Layout) -> list[list[int]]:
        entries, rows = describe(layout.sources), []
        needed = max(entry.first_row + entry.num_rows for entry in entries)
        if needed > layout.num_rows:  # compiled loops would read what lies behind the codebook
            raise ValueError(f"codebook must have at least {needed} rows, got {layout.num_rows}.")
        for entry in entries:
            row = [0] * slot_table.NUM_SLOT_COLUMNS
            row[slot_table.KIND] = int(entry.kind)
            row[slot_table.FIRST_ROW], row[slot_table.NUM_ROWS] = entry.first_row, entry.num_rows
            row[slot_table.STEP], row[slot_table.BLOCK_SIZE] = entry.step, entry.block_size
            row[slot_table.NUM_LEARNED] = entry.num_learned
            if entry.table is not None:
                self.facts.append(_readable(entry.table, "pointers" if entry.num_learned else "seeds"))
                row[slot_table.STRIDE] = entry.table.stride(0) * entry.table.itemsize
                row[slot_table.ITEM] = entry.table.itemsize
                step = row[slot_table.STRIDE] if entry.kind is SlotKind.HASHED else entry.table.itemsize
                row[slot_table.ADDRESS] = entry.table.data_ptr() + entry.column * step
            if entry.seeds is not None:
                self.facts.append(_readable(entry.seeds, "seeds"))
                step = entry.seeds.stride(0) * entry.seeds.itemsize
                row[slot_table.SEEDS] = entry.seeds.data_ptr() + entry.column * step
            rows.append(row)
        if all(entry.num_learned >= layout.num_embeddings for entry in entries if entry.kind is SlotKind.LEARNED):
            _read_four_at_once(entries, rows)
        return rows


def _readable(fact: Tensor, name: str) -> Tensor:
    """Refuse to take the address of what compiled loops cannot read."""
    if fact.device.type != "cpu" or type(fact) is not Tensor:
        raise ValueError(
            f"{name} must be on the CPU, as the codebook is, got {fact.device}: load a state that has them."
        )
    return fact


def _check_memory(codebook: Tensor) -> None:
    """Refuse a codebook whose memory was given back, as sharded training does with parameters between two steps."""
    held = codebook.untyped_storage().nbytes() - codebook.storage_offset() * codebook.itemsize
    if held < codebook.nbytes:
        raise ValueError(f"codebook must have its {codebook.numel()} values in memory, got a storage of {held} bytes.")


def _read_four_at_once(entries: list[Slot], rows: list[list[int]]) -> None:
    """Let one read fetch four pointers of two bytes that lie side by side and are stored for every id."""
    places = [place for place, entry in enumerate(entries) if entry.kind is SlotKind.LEARNED]
    if len(places) != 4 or len({after - before for before, after in pairwise(places)}) != 1:
        return
    first = rows[places[0]]
    if (first[slot_table.ITEM], first[slot_table.STRIDE]) != (2, 8) or first[slot_table.ADDRESS] % 8:
        return
    first[slot_table.KIND], first[slot_table.STEP] = slot_table.LEARNED_FOUR, places[1] - places[0]
    for place in places[1:]:
        rows[place][slot_table.KIND] = slot_table.FILLED


def row_starts(program: Program, counts: Sequence[int]) -> tuple[Array, int]:
    """Where the rows of each feature start, in whole blocks, and how many there are in all."""
    sizes = [-(-n // BLOCK) * BLOCK * slots for n, slots in zip(counts, program.num_slots, strict=True)]
    ends = list(accumulate(sizes, initial=0))
    return np.array(ends[:-1], dtype=np.int64), ends[-1]


def _column_ranges(layout: Layout, num_parts: int) -> list[tuple[int, int]]:
    """First column and number of columns of each part, where columns share no rows."""
    if not layout.splits_by_column:
        return [(0, layout.columns)]
    num_parts = min(num_parts, layout.columns)
    cuts = [layout.columns * index // num_parts for index in range(num_parts + 1)]
    return [(first, last - first) for first, last in pairwise(cuts)]


def _form_of(form: Form, columns: int, features: Array) -> Form:
    """The form for some of the columns of these features."""
    run, terms, _, _ = form
    whole = RUNS[min(longest_run(columns * int(width)) for width in features[:, table_of.WIDTH])]
    return (run, terms, (0,) * columns, whole) if terms and columns in SHORT_COLUMNS else (run, (), (), whole)
