"""What deltas are made of: steps between numbers, rows of any number of bits, checksums."""

import numpy as np
import pytest
import torch

from cce.indexing import PointerStore
from cce.serving.numpy_deltas import as_rows, as_stream, checksum, from_gaps, to_gaps


@pytest.mark.parametrize(
    ("numbers", "steps"),
    [
        ([], []),
        ([0, 1, 5], [1, 1, 4]),
        ([253], [254]),
        ([254, 255], [255, 0, 1]),
        ([300, 301], [255, 46, 1]),
    ],
)
def test_rising_numbers_are_steps_of_a_byte(numbers, steps):
    gaps = to_gaps(np.array(numbers, np.int64))
    assert (gaps.dtype, gaps.tolist()) == (np.uint8, steps)
    assert from_gaps(gaps).tolist() == numbers


def test_steps_of_two_bytes_are_taken_where_numbers_are_rare():
    numbers = np.array([70_000, 130_000, 200_000_000])
    gaps = to_gaps(numbers)
    assert gaps.dtype == np.uint16
    assert from_gaps(gaps).tolist() == numbers.tolist()


@pytest.mark.parametrize("num_rows", [2, 5, 16, 256, 300, 70_000])
def test_rows_are_read_and_packed_as_a_pointer_store_does(num_rows):
    store = PointerStore(9, 3, num_rows)
    store.write(0, (store.read(torch.arange(9)) + 7 * torch.arange(27).view(9, 3)) % num_rows)
    words, bits = store.words.numpy(), 3 * store.bits
    rows = as_rows(words, 9, bits)
    np.testing.assert_array_equal(as_stream(rows, bits), words)
    half = PointerStore(4, 3, num_rows)
    half.write(0, store.read(torch.arange(5, 9)))
    np.testing.assert_array_equal(as_stream(rows[5:], bits), half.words.numpy())


def test_a_checksum_is_of_names_types_shapes_values_and_metadata():
    tensors, metadata = {"a": np.arange(6, dtype=np.int32), "b": np.zeros(0, np.uint8)}, {"number": "1", "sha256": "x"}
    same = checksum(dict(reversed(tensors.items())), {"number": "1"})
    assert checksum(tensors, metadata) == same
    others = [
        ({"c": tensors["a"], "b": tensors["b"]}, metadata),
        (tensors | {"a": tensors["a"].view(np.uint32)}, metadata),
        (tensors | {"a": tensors["a"].reshape(2, 3)}, metadata),
        (tensors | {"a": tensors["a"] + 1}, metadata),
        (tensors, {"number": "2"}),
    ]
    assert len({same, *(checksum(*other) for other in others)}) == 6
