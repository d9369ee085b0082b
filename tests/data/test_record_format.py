"""Records: the smallest type for every id, every number aligned, nothing overlapping."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cce.data.record_format import id_dtype, map_file, record_dtype
from cce.schema import Feature, Schema


@pytest.mark.parametrize(
    ("num_embeddings", "name"),
    [
        (1, "u1"),
        (256, "u1"),
        (257, "u2"),
        (65_536, "u2"),
        (65_537, "i4"),
        (2**31, "i4"),
        (2**31 + 1, "u4"),
        (2**32 + 1, "i8"),
    ],
)
def test_ids_take_the_smallest_type_that_holds_the_last(num_embeddings, name):
    assert id_dtype(num_embeddings) == np.dtype(name)
    assert np.array([num_embeddings - 1]).astype(id_dtype(num_embeddings))[0] == num_embeddings - 1


@pytest.mark.slow
@given(st.lists(st.sampled_from([5, 300, 70_000, 2**33]), max_size=12), st.integers(0, 5), st.booleans())
def test_every_number_of_a_record_is_aligned_and_has_bytes_of_its_own(sizes, num_dense, has_weights):
    features = tuple(Feature(f"c{index}", size) for index, size in enumerate(sizes))
    dtype = record_dtype(Schema(features, tuple(f"d{i}" for i in range(num_dense)), has_weights))
    assert set(dtype.names) == {
        "label",
        *(["weight"] if has_weights else []),
        *(["dense"] if num_dense else []),
        *(f"id{index}" for index in range(len(sizes))),
    }
    taken = set()
    for name in dtype.names:
        field, offset = dtype.fields[name][:2]
        width = field.base.itemsize
        assert offset % width == dtype.itemsize % width == 0
        own = set(range(offset, offset + field.itemsize))
        assert not own & taken
        taken |= own
    assert dtype.itemsize - len(taken) < 8


def test_an_empty_file_is_no_numbers(tmp_path):
    (tmp_path / "x").touch()
    assert map_file(tmp_path / "x", np.dtype("<i8")).shape == (0,)
    (tmp_path / "y").write_bytes(np.arange(5, dtype="<i8").tobytes())
    assert map_file(tmp_path / "y", np.dtype("<i8")).tolist() == [0, 1, 2, 3, 4]
