"""The figure of the lemma, with few samples."""

import pytest

from cce_lab.theory.bounds import exact_ratio
from cce_lab.theory.figures import FIGURES


@pytest.fixture(scope="module")
def figure():
    return FIGURES["lemma"](quick=True)


def test_all_claims_hold(figure):
    assert figure.verdict == "held"
    assert len(figure.claims) == 4


def test_exact_lines_are_exact_and_bands_hold_them(figure):
    simulated, exact = figure.series[:2], figure.series[2:]
    for line, reference in zip(simulated, exact, strict=True):
        assert reference.name == f"{line.name}, exact"
        assert reference.y[0] == exact_ratio(0.05, line.name)
        assert all(low < y < high for low, y, high in zip(line.low, reference.y, line.high, strict=True))
