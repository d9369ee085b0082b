import pytest
import torch

from cce.embeddings.codes import Codes, check_bits


@pytest.mark.parametrize(("bits", "largest"), [(4, 7), (8, 127), (16, 32767)])
def test_codes_are_saved_but_are_no_parameters(bits, largest):
    codes = Codes(10, 4, bits=bits)
    assert codes.largest == largest
    assert codes.nbytes == 10 * 4 * bits // 8
    assert list(codes.parameters()) == list(codes.buffers()) == []
    assert codes.double().state_dict()["values"].dtype is codes.values.dtype


@pytest.mark.parametrize("width", [1, 5, 6])
def test_two_codes_of_four_bits_share_a_byte(width):
    codes = Codes(9, width, bits=4)
    written = torch.randint(-7, 8, (6, width), generator=torch.Generator().manual_seed(0))
    codes.write(2, written.float())
    assert codes.nbytes == 9 * ((width + 1) // 2)
    assert codes.numel == 9 * width
    rows = torch.tensor([7, 2, 2, 5])
    assert torch.equal(codes.read(rows).long(), written[rows - 2])


def test_other_widths_are_rejected():
    check_bits("bits", 16)
    with pytest.raises(ValueError, match=r"bits must be 4, 8 or 16, got 12\."):
        check_bits("bits", 12)
