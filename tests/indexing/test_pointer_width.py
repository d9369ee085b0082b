"""Widths of pointers: the narrowest that will do, packed without gaps."""

import pytest
import torch

from cce.indexing.pointer_store import WIDTHS, gather, pack, packed_nbytes, pointer_bits, pointer_nbytes, unpack


@pytest.mark.parametrize(
    ("num_rows", "bits"),
    [(1, 1), (2, 1), (3, 2), (5, 3), (16, 4), (17, 5), (256, 8), (257, 9), (1024, 10), (65_536, 16), (65_537, 32)],
)
def test_the_narrowest_width_names_every_row(num_rows, bits):
    assert pointer_bits(num_rows) == bits
    assert pointer_nbytes(1000, 4, num_rows) == 1000 * 4 * bits // 8 + 3


def test_up_to_16_rows_take_half_a_byte_and_odd_numbers_of_columns_round_up_once():
    assert pointer_nbytes(1001, 3, 16) == 1502 + 3  # 1501.5, and padding
    assert pointer_nbytes(1001, 1, 2) == 126 + 3  # 125.125
    assert pointer_nbytes(0, 3, 16) == 0


@pytest.mark.parametrize("bits", WIDTHS)
def test_words_are_read_by_slow_arithmetic_on_one_long_integer(bits):
    pointers = torch.randint(0, 1 << min(bits, 31), (24 * 3,), generator=torch.Generator().manual_seed(bits))
    words = torch.cat([pack(pointers, bits), torch.zeros(3, dtype=torch.uint8)])
    assert words.nbytes == packed_nbytes(len(pointers), bits)
    line = int.from_bytes(words.numpy().tobytes(), "little")
    assert [line >> (p * bits) & ((1 << bits) - 1) for p in range(len(pointers))] == pointers.tolist()
    assert torch.equal(unpack(words, bits)[: len(pointers)].long(), pointers)
    ids = torch.tensor([23, 0, 5, 5])
    assert torch.equal(gather(words, ids, 3, bits), pointers.view(24, 3)[ids])
    assert torch.equal(gather(words, ids.int(), 3, bits), pointers.view(24, 3)[ids])
