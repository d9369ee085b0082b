"""Rate and distortion on planted clusters, with few ids."""

import pytest
import torch

from cce_lab.theory import FIGURES
from cce_lab.theory.figures.rate_distortion import ORACLE, distortion


@pytest.fixture(scope="module")
def figure():
    return FIGURES["rate-distortion"](quick=True)


def test_one_row_for_all_ids_is_the_unit_and_more_bits_lower_it(figure):
    for line in figure.series[:3]:
        assert line.y[0] == pytest.approx(1)
        assert list(line.y) == sorted(line.y, reverse=True)
    assert figure.series[3].name == ORACLE
    assert figure.series[3].is_reference
    assert len(set(figure.series[3].y)) == 1


def test_with_one_bit_more_than_the_planted_clusters_k_means_has_less_distortion(figure):
    found = {claim.text: claim.held for claim in figure.claims}
    assert len(found) == 4
    assert found["with one bit more it has less"]
    assert found["beyond that rate weights lower the weighted distortion"]


def test_the_distortion_is_that_of_weighted_means_relative_to_one_mean():
    vectors = torch.tensor([[0.0], [2.0], [5.0]])
    counts = torch.tensor([3.0, 1.0, 4.0])
    # means 0.5 and 5: errors 3 * 0.25 + 1 * 2.25 = 3; one mean 2.75: 3 * 7.5625 + 0.5625 + 4 * 5.0625 = 43.5
    assert distortion(vectors, torch.tensor([0, 0, 1]), counts) == pytest.approx(3 / 43.5)
