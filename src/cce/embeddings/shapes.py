"""The tensors of a table, by shape: defined once, so that constructors make them and footprints count them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cce.indexing import SEED_BYTES, pointer_nbytes

COUNT_BYTES = 4  # of a counter of one id
MAP_BYTES = 12  # of a row map, for 64 ids


@dataclass(frozen=True)
class Shapes:
    """Shapes of the parameters, by name, and the sizes of what says where to look."""

    parameters: Mapping[str, tuple[int, int]]
    num_hashes: int = 0  # hash functions
    pointers: tuple[int, int, int] = (0, 0, 1)  # ids, columns, and rows that a pointer can name
    num_counts: int = 0  # ids whose occurrences are counted
    codes: tuple[int, int] = (0, 0)  # rows of trained integers, and their width
    code_row_nbytes: int = 0  # of a row of them
    num_mapped: int = 0  # ids that have a bit, and a share of a rank, in a row map

    @property
    def num_params(self) -> int:
        """All parameters; of rows of integers, the integers alone."""
        return math.prod(self.codes) or self._num_floats

    def codebook_nbytes(self, itemsize: int) -> int:
        """Bytes of everything trainable; a parameter has `itemsize`."""
        return self._num_floats * itemsize + self.codes[0] * self.code_row_nbytes

    @property
    def pointer_nbytes(self) -> int:
        """Bytes of pointers, of the seeds of hash functions and of counters."""
        mapped = -(-self.num_mapped // 64) * MAP_BYTES
        return pointer_nbytes(*self.pointers) + self.num_hashes * SEED_BYTES + self.num_counts * COUNT_BYTES + mapped

    @property
    def _num_floats(self) -> int:
        return sum(math.prod(shape) for shape in self.parameters.values())
