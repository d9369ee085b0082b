"""How floats are stored, how many are handled at once, and the names of what is done to them."""

import numpy as np
import pytest

from cce import compiled
from cce.compiled import memory

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")


@pytest.mark.parametrize(
    ("width", "run"), [(1, 1), (2, 2), (3, 1), (4, 4), (6, 2), (7, 1), (8, 8), (12, 4), (16, 16), (20, 4), (64, 16)]
)
def test_the_longest_run_divides_the_width(width, run):
    assert memory.longest_run(width) == run


def test_every_float_type_has_a_kind_of_its_own():
    assert len({np.asarray(kind).dtype for kind in memory.KINDS.values()}) == len(memory.KINDS) == 4
