"""Theory against practice, small."""

import pytest

from cce.theory.figures import FIGURES


@pytest.fixture(scope="module")
def figure():
    return FIGURES["theory-practice"](quick=True)


def test_the_mean_lies_under_the_theorem(figure):
    assert figure.claims[0].held
    measured, theorem, ideal = (line.y for line in figure.series)
    assert all(found <= 1.02 * most for found, most in zip(measured, theorem, strict=True))
    assert all(low <= high for low, high in zip(ideal, theorem, strict=True))
    assert ideal[1] == pytest.approx((1 - 1 / 40) ** 4)


def test_the_band_holds_the_mean(figure):
    line = figure.series[0]
    assert all(low <= y <= high for low, y, high in zip(line.low, line.y, line.high, strict=True))
    assert line.low[-1] < line.high[-1]
