import pytest
import torch

from cce.embeddings.codes import HEADROOM, Codes, check_bits


@pytest.mark.parametrize(("bits", "largest"), [(8, 127), (16, 32767)])
def test_codes_are_saved_but_are_no_parameters(bits, largest):
    codes = Codes(10, 3, bits=bits)
    assert codes.largest == largest
    assert codes.nbytes == 10 * 3 * bits // 8
    assert list(codes.parameters()) == list(codes.buffers()) == []
    assert codes.double().state_dict()["values"].dtype is codes.values.dtype


def test_a_scale_fits_the_largest_value_or_the_root_mean_square():
    codes = Codes(1, 1, bits=8)
    assert codes.fitted_scale(torch.tensor([-3.0, 1.0])) == pytest.approx(3 / 127)
    far = torch.ones(1000)
    far[0] = 1000.0
    assert codes.fitted_scale(far) == pytest.approx(HEADROOM * far.square().mean().sqrt().item() / 127)
    assert codes.fitted_scale(torch.zeros(5)) > 0


def test_other_widths_are_rejected():
    check_bits("bits", 16)
    with pytest.raises(ValueError, match=r"bits must be 8 or 16, got 12\."):
        check_bits("bits", 12)
