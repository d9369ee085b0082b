"""The loops by themselves: what they write, and where."""

import numpy as np
import pytest

from cce import compiled
from cce.serving import loops

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops are off")


def tables(values, scale, *, num_ids=5, padding=-1, terms=1):
    feature = np.zeros((1, loops.NUM_FEATURE_COLUMNS), np.int64)
    feature[0, [loops.VALUES, loops.SCALE, loops.NUM_IDS, loops.PADDING]] = values.ctypes.data, scale, num_ids, padding
    feature[0, [loops.NUM_SLOTS, loops.TERMS, loops.DIM]] = terms, terms, values.shape[1]
    slots = np.zeros((terms, loops.NUM_SLOT_COLUMNS), np.int64)
    slots[:, loops.KIND] = loops.OWN
    return feature, slots


def run(values, ids, *, scale=1, padding=-1, terms=1):
    ids, out = np.array(ids, np.int64), np.full((len(ids), values.shape[1]), 7, np.float32)
    where = (ids.ctypes.data, 8, 0, out.ctypes.data, out.strides[0], 0, len(ids))
    numbers = tables(values, scale, padding=padding, terms=terms)
    run_of = (0,) * values.shape[1]
    if values.dtype == np.int8:
        return loops.look_up_codes(*numbers, *where, run_of), out
    return loops.look_up_floats(*numbers, *where, 4, np.float32(0), run_of), out


def test_rows_are_copied_and_summed():
    values = np.arange(10, dtype=np.float32).reshape(5, 2)
    for terms in (1, 2, 3):
        wrong, out = run(values, [4, 0, 1], terms=terms)
        assert wrong == -1
        np.testing.assert_array_equal(out, terms * values[[4, 0, 1]])


def test_codes_are_signed_and_scaled():
    values = np.array([[127, -127], [-1, 0]] * 2 + [[3, 4]], np.int8)
    scale = np.array([[0.5, 2]], np.float32)
    _, out = run(values, [0, 1, 4], scale=scale.ctypes.data)
    np.testing.assert_array_equal(out, [[63.5, -254], [-0.5, 0], [1.5, 8]])


def test_the_padding_id_gives_zeros():
    _, out = run(np.ones((5, 3), np.float32), [1, 2, 1], padding=1)
    np.testing.assert_array_equal(out[:, 0], [0, 1, 0])


@pytest.mark.parametrize("wrong", [5, -1, 2**62])
def test_an_id_out_of_range_is_found_before_anything_is_read(wrong):
    place, out = run(np.ones((5, 1), np.float32), [0, wrong])
    assert place == 0
    assert (out == 7).all()
