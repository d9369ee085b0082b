"""Smart against IID noise, small."""

import pytest

from cce_lab.theory.figures import FIGURES
from cce_lab.theory.figures.noise import Sizes


@pytest.fixture(scope="module")
def figure():
    return FIGURES["noise"](quick=True)


def test_full_size_has_the_papers_rank_and_repetitions():
    assert (Sizes().rank, Sizes().repetitions) == (10, 40)


@pytest.mark.slow
def test_the_papers_claims_hold(figure):
    assert [claim.held for claim in figure.claims] == [True, True, True]
    lines = {line.name: line.y for line in figure.series}
    assert lines["smart"][-1] < 0.01 * lines["iid"][-1]
    assert lines["half-iid"][-1] > lines["iid"][-1]
    assert list(lines) == ["iid", "half-iid", "smart", "half-smart", "bound with 1/d1"]
