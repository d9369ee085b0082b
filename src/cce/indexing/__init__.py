"""H: which rows of the codebook an id points to, by hashing, by arithmetic, or learned."""

from cce.indexing.agreement import check_index_state, index_tensors
from cce.indexing.assignments import Assignments
from cce.indexing.ids import NO_ID, blocks, check_id_type, check_ids
from cce.indexing.multiply_shift import (
    MIX_1,
    MIX_2,
    SEED_BYTES,
    MultiplyShift,
    UnitInterval,
    hash32,
    hash32_parts,
    make_key,
    row_noise,
    scramble,
    stack_rows,
    uniform,
    uniform_pair,
    unscramble,
)
from cce.indexing.open_row_map import OpenRowMap
from cce.indexing.pointer_store import PointerStore, pointer_bits, pointer_nbytes
from cce.indexing.quotient_remainder import QuotientRemainder, balanced_radices, mixed_radix_digits, radices_within
from cce.indexing.randomness import check_generator, common_generator, make_generator
from cce.indexing.row_map import RowMap, count_bits
from cce.indexing.sources import (
    CircularPlaces,
    DigitRows,
    HashedRows,
    LearnedRows,
    OwnRow,
    RowSource,
    Slot,
    SlotKind,
    describe,
    rows_of,
    slots_of,
)
from cce.indexing.state import IndexModule, Version, Versioned, keep_on_cpu, versions_of
