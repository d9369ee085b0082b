import pytest
import torch

from cce.embeddings.rounding import FEW_HEADROOMS, HEADROOM, SERIAL, Rounding


def test_a_scale_fits_the_largest_value_or_the_root_mean_square():
    rounding = Rounding(8)
    assert rounding.fitted_scale(torch.tensor([-3.0, 1.0])) == pytest.approx(3 / 127)
    far = torch.ones(1000)
    far[0] = 1000.0
    assert rounding.fitted_scale(far) == pytest.approx(HEADROOM * far.square().mean().sqrt().item() / 127)
    assert rounding.fitted_scale(torch.zeros(5)) > 0


def test_with_four_bits_the_scale_has_the_least_error():
    values = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    rounding = Rounding(4)
    best = rounding.fitted_scale(values)
    errors = [rounding._error(values, headroom / 7) for headroom in (1, 1.5, 2, 2.5, 3, 4, 5, 8)]
    assert rounding._error(values, best) <= 1.02 * min(errors)
    assert rounding._error(values, best) / len(values) < 0.015  # 0.0115 is the best of 16 equal steps


def heavy_tailed(num_values=5000):
    """Values of which some lie beyond the largest code with 4 and with 8 bits."""
    values = torch.randn(num_values, generator=torch.Generator().manual_seed(0))
    values[::500] *= 30
    return values


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_values_that_were_rounded_have_the_same_scale_again(bits):
    rounding, values = Rounding(bits), heavy_tailed()
    scale = torch.tensor(rounding.fitted_scale(values))
    codes = rounding.nearest(values, scale)
    assert codes.abs().max() == rounding.largest
    assert (values.abs().max() > 1.1 * rounding.largest * scale).item()  # cut off
    rounded = codes * scale
    again = torch.tensor(rounding.fitted_scale(rounded))
    torch.testing.assert_close(again, scale)
    assert torch.equal(rounding.nearest(rounded, again), codes)


def test_a_value_far_out_is_not_taken_for_the_largest_code_of_rounded_ones():
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    values[0] = 1e8
    assert Rounding(8).fitted_scale(values) < 1e8 / 127 / 2


def test_codes_stay_within_the_largest():
    found = Rounding(4).nearest(torch.tensor([-9.0, -1.6, 0.4, 7.4, 100.0]), 1.0)
    assert found.tolist() == [-7, -2, 0, 7, 7]


def test_a_scale_for_each_part():
    parts = [torch.tensor([1.0, -2.0]), torch.tensor([[4.0]])]
    torch.testing.assert_close(Rounding(8).fitted_scales(parts), torch.tensor([2.0, 4.0]) / 127)


def test_many_values_are_summed_whole():
    values = heavy_tailed(3 * SERIAL + 5)
    expected = HEADROOM * values.double().square().mean().sqrt() / 127
    assert Rounding(8).fitted_scale(values) == pytest.approx(expected.item())
    scales = [headroom * values.double().square().mean().sqrt().item() / 7 for headroom in FEW_HEADROOMS]
    errors = [(Rounding(4).nearest(values, s) * s - values).double().square().sum().item() for s in scales]
    assert Rounding(4).fitted_scale(values) == pytest.approx(scales[errors.index(min(errors))])
