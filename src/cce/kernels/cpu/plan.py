"""Launch plans: layouts as the integers and addresses that compiled loops follow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cce.compiled import KINDS, RUNS, longest_run
from cce.indexing import NO_ID, Slot, SlotKind, Version, describe
from cce.kernels.cpu.loops import FEATURE, UNIT
from cce.kernels.cpu.rows import BLOCK, SLOT

if TYPE_CHECKING:
    from cce.kernels.layout import Layout

Array = np.ndarray[Any, Any]
Specialisation = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
Group = tuple[Specialisation, Array]  # features that are alike, one a row
WorkShare = list[tuple[Specialisation, Array, Array]]  # the features of a specialisation, and units of work on them

PLAIN_TYPES = frozenset({Tensor, torch.nn.Parameter})  # whose memory is what it says
MAX_ROWS = 2**31  # rows are named by int32
_dtype, _shape, _count = map(attrgetter, ("dtype", "shape", "count"))  # a comprehension would be a call at every batch
SHORT_TERMS, SHORT_COLUMNS = (1, 2), (1, 2, 4, 8)  # counts for which loops of their own are compiled


class Launch(NamedTuple):
    """A plan with the codebooks that it is run on."""

    plan: LaunchPlan
    groups: list[Group]  # with the addresses of codebooks
    dtype: torch.dtype
    sums: torch.dtype  # that values are summed in
    floats: tuple[tuple[int, int], Any, Any]  # bytes of a stored value and of a sum, and their kinds
    copies: list[Tensor]  # of codebooks that are not contiguous
    addresses: list[int]  # of the codebooks

    def is_current(self, codebooks: Sequence[Tensor]) -> bool:
        """Whether it is that of these codebooks, where they lie now, and of a plan that is current."""
        return (
            PLAIN_TYPES.issuperset(map(type, codebooks))
            and list(map(Tensor.data_ptr, codebooks)) == self.addresses
            and {self.dtype}.issuperset(map(_dtype, codebooks))
            and all(map(Tensor.is_contiguous, codebooks))
            and self.plan.is_current(codebooks)
        )


class LaunchPlan:
    """Several layouts in numbers: `slots`, and `groups` of features that are alike.

    Addresses are those at the time of construction: `state` keeps the tensors behind them alive, and `is_current` says
    whether the plan still holds. `versions` are those of the modules that the layouts were read from.
    """

    def __init__(
        self, layouts: Sequence[Layout], *, names: Sequence[str] = (), versions: Sequence[Version] = ()
    ) -> None:
        self._versions, self._counts = versions, [version.count for version in versions]
        self.layouts = tuple(layouts)
        self.names = tuple(names)
        self.num_features = len(self.layouts)
        self.dim = sum(layout.dim for layout in layouts)
        self.shapes = [(layout.num_rows, layout.width) for layout in layouts]  # of the codebooks
        self.num_slots = [layout.num_slots for layout in layouts]
        self.most_slots = max(self.num_slots)
        self.block_values = BLOCK * max(layout.dim for layout in layouts)  # of the vectors of a block of ids
        self._state: dict[int, Tensor] = {}  # one tensor of each storage
        self.slots = np.array([line for layout in layouts for line in self._slot_lines(layout)], SLOT)
        self.groups = self._make_groups()
        self.state = list(self._state.values())
        self._addresses = [tensor.data_ptr() for tensor in self.state]
        self._shares: dict[int, list[WorkShare]] = {}
        self._starts: tuple[int, tuple[Array, int]] | None = None
        self.compiled_for: set[torch.dtype] = set()  # of codebooks

    def is_current(self, codebooks: Sequence[Tensor]) -> bool:
        """Whether no module was changed, no index state has moved, and codebooks have the same shapes.

        A tensor that is sent to another process moves to shared memory without anyone's setting an attribute.
        """
        return (
            list(map(_count, self._versions)) == self._counts
            and list(map(Tensor.data_ptr, self.state)) == self._addresses
            and list(map(_shape, codebooks)) == self.shapes
        )

    def bind(self, codebooks: Sequence[Tensor]) -> Launch:
        """The plan for these codebooks, of one float type and on the CPU."""
        copies = [codebook for codebook in codebooks if not codebook.is_contiguous()]
        if copies:
            codebooks = copies = [codebook.contiguous() for codebook in codebooks]
        for codebook, shape in zip(codebooks, self.shapes, strict=True):
            _check_memory(codebook, shape)
        addresses = [codebook.data_ptr() for codebook in codebooks]
        groups = [(specialisation, features.copy()) for specialisation, features in self.groups]
        for _, features in groups:
            features["codebook"] = [addresses[place] for place in features["place"]]
        dtype = codebooks[0].dtype
        sums = sum_type(dtype)
        floats = ((dtype.itemsize, sums.itemsize), KINDS[dtype], KINDS[sums])
        return Launch(self, groups, dtype, sums, floats, copies, addresses)

    def starts(self, batch: int) -> tuple[Array, int]:
        """`row_starts` for one id an example; those of the last batch are remembered."""
        known = self._starts
        if known is None or known[0] != batch:
            known = self._starts = (batch, row_starts(self, [batch] * self.num_features))
        return known[1]

    def work_shares(self, num_threads: int) -> list[WorkShare]:
        """The work of a backward pass, cut into as many shares of features, or of some of their columns."""
        if num_threads not in self._shares:
            self._shares[num_threads] = self._cut(num_threads)
        return self._shares[num_threads]

    def _cut(self, num_threads: int) -> list[WorkShare]:
        units = [
            (layout.terms * columns * layout.width, group, place, first, columns)
            for group, (_, features) in enumerate(self.groups)
            for place, feature in enumerate(features["place"])
            for layout in [self.layouts[feature]]
            for first, columns in _column_ranges(layout, num_threads if self.num_features < num_threads else 1)
        ]
        loads = [0] * max(1, min(num_threads, len(units)))
        shares: list[dict[tuple[int, int], list[tuple[int, int, int]]]] = [{} for _ in loads]
        for cost, group, place, first, columns in sorted(units, key=lambda unit: -unit[0]):
            lightest = loads.index(min(loads))
            loads[lightest] += cost
            shares[lightest].setdefault((group, columns), []).append((place, first, columns))
        return [
            [
                (_specialise_columns(self.groups[group][0], columns), self.groups[group][1], np.array(lines, UNIT))
                for (group, columns), lines in share.items()
            ]
            for share in shares
        ]

    def _make_groups(self) -> list[Group]:
        """The features of each specialisation, as records."""
        groups: dict[Specialisation, list[Array]] = {}
        out, first_slot = 0, 0
        for place, layout in enumerate(self.layouts):
            line = np.zeros((), FEATURE)
            line["place"], line["out"], line["first_slot"] = place, out, first_slot
            for name in ("columns", "terms", "width"):
                line[name] = getattr(layout, name)
            line["last_id"] = (layout.num_embeddings or 0) - 1
            line["padding"] = NO_ID if layout.padding_idx is None else layout.padding_idx
            if layout.row_map is not None:
                line["map_bits"], line["map_ranks"] = (
                    self._address(each, "a row map") for each in layout.row_map.parts
                )
                line["map_shift"], line["map_count"] = layout.row_map.shift, layout.row_map.num_rows
            groups.setdefault(specialise(layout), []).append(line)
            out += layout.dim
            first_slot += layout.num_slots
        return [(specialisation, np.array(lines)) for specialisation, lines in groups.items()]

    def _slot_lines(self, layout: Layout) -> list[Array]:
        entries = describe(layout.sources)
        needed = max(entry.first_row + entry.num_rows for entry in entries)
        if needed > layout.num_rows:  # compiled loops would read what lies behind the codebook
            raise ValueError(f"codebook must have at least {needed} rows, got {layout.num_rows}.")
        num_ids = layout.num_embeddings if layout.row_map is None else layout.row_map.num_rows
        for entry in entries:
            if entry.kind is SlotKind.LEARNED and entry.num_ids < num_ids:
                raise ValueError(f"pointers must be those of {num_ids} ids, got {entry.num_ids}.")
        return [self._slot_line(entry) for entry in entries]

    def _slot_line(self, entry: Slot) -> Array:
        line = np.zeros((), SLOT)
        for name, value in vars(entry).items():
            if isinstance(value, Tensor):
                line[name] = self._address(value, name)
            elif value is not None:
                line[name] = value
        return line

    def _address(self, tensor: Tensor, name: str) -> int:
        """The address of index state, which is kept alive; reject what compiled loops cannot read there."""
        if tensor.device.type != "cpu" or type(tensor) is not Tensor:
            raise ValueError(
                f"{name} must be on the CPU, as the codebook is, got {tensor.device}: load a state_dict that has them."
            )
        self._state[tensor.untyped_storage().data_ptr()] = tensor
        return tensor.data_ptr()


def specialise(layout: Layout) -> Specialisation:
    """What loops are compiled for: see `loops`."""
    run = longest_run(layout.width)
    if run != layout.width or layout.terms not in SHORT_TERMS or layout.columns not in SHORT_COLUMNS:
        return RUNS[run], (), ()
    return RUNS[run], (0,) * layout.terms, (0,) * layout.columns


def splits_by_column(layout: Layout) -> bool:
    """Whether no two columns share a row, so that their gradients can be summed side by side."""
    entries = describe(layout.sources)
    columns = [entries[first : first + layout.terms] for first in range(0, len(entries), layout.terms)]
    spans = sorted((min(e.first_row for e in c), max(e.first_row + e.num_rows for e in c)) for c in columns)
    return all(end <= start for (_, end), (start, _) in pairwise(spans))


def row_starts(plan: LaunchPlan, counts: Sequence[int]) -> tuple[Array, int]:
    """Where the rows of each feature start, in whole blocks, and how many there are in all."""
    sizes = [-(-n // BLOCK) * BLOCK * slots for n, slots in zip(counts, plan.num_slots, strict=True)]
    ends = list(accumulate(sizes, initial=0))
    return np.array(ends[:-1], dtype=np.int64), ends[-1]


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type that values of `dtype` are summed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _check_memory(codebook: Tensor, shape: tuple[int, int]) -> None:
    """Reject a codebook whose memory was given back, as sharded training does with parameters between two steps."""
    if tuple(codebook.shape) != shape:  # loops would read what lies behind it
        raise ValueError(f"codebook must have shape {shape}, got {tuple(codebook.shape)}.")
    held = codebook.untyped_storage().nbytes() - codebook.storage_offset() * codebook.itemsize
    if held < codebook.nbytes:
        raise ValueError(f"codebook must have its {codebook.numel()} values in memory, got a storage of {held} bytes.")


def _column_ranges(layout: Layout, num_parts: int) -> list[tuple[int, int]]:
    """First column and number of columns of each part, where columns share no rows."""
    if num_parts == 1 or not splits_by_column(layout):
        return [(0, layout.columns)]
    num_parts = min(num_parts, layout.columns)
    cuts = [layout.columns * index // num_parts for index in range(num_parts + 1)]
    return [(first, last - first) for first, last in pairwise(cuts)]


def _specialise_columns(specialisation: Specialisation, columns: int) -> Specialisation:
    """The specialisation for some of the columns."""
    run, terms, _ = specialisation
    return (run, terms, (0,) * columns) if terms and columns in SHORT_COLUMNS else (run, (), ())
