"""H: which rows of the codebook an id points to, by hashing, by arithmetic, or learned."""

from cce.indexing.assignments import Assignments, smallest_unsigned
from cce.indexing.counts import IdCounts
from cce.indexing.ids import check_ids
from cce.indexing.multiply_shift import MultiplyShift, hash32
from cce.indexing.quotient_remainder import QuotientRemainder, balanced_radices, mixed_radix_digits, radices_within
from cce.indexing.randomness import check_generator, make_generator
from cce.indexing.state import IndexModule
from cce.indexing.unit_interval import UnitInterval

__all__ = [
    "Assignments",
    "IdCounts",
    "IndexModule",
    "MultiplyShift",
    "QuotientRemainder",
    "UnitInterval",
    "balanced_radices",
    "check_generator",
    "check_ids",
    "hash32",
    "make_generator",
    "mixed_radix_digits",
    "radices_within",
    "smallest_unsigned",
]
