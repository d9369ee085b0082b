"""k-means as a factorisation: the paper's example, and errors against widths."""

import pytest
import torch

from cce_lab.theory import factorise
from cce_lab.theory.figures import FIGURES
from cce_lab.theory.figures.factorisation import CLUSTERS, CODEBOOK, TABLE, best_codebook, left_over
from cce_lab.theory.sparse import ones_at
from helpers.theory import dense_matrix, normal


def test_all_claims_hold():
    figure = FIGURES["factorisation"](quick=True)
    assert figure.verdict == "held"
    assert [line.name for line in figure.series] == ["k-means", "k-means, two 1s", "random"]


def test_the_papers_codebook_has_the_means_of_its_clusters():
    table = torch.tensor(TABLE, dtype=torch.float64)
    codebook = best_codebook(table, ones_at(torch.tensor(CLUSTERS).unsqueeze(1), 4))
    torch.testing.assert_close(codebook, torch.tensor(CODEBOOK, dtype=torch.float64), atol=6e-4, rtol=0)


@pytest.mark.parametrize("num_ones", [1, 2])
def test_what_is_left_over_is_the_part_outside_the_span(num_ones):
    table = normal(40, 3)
    factor = factorise(table, 8, num_ones=num_ones, generator=torch.Generator().manual_seed(0))
    matrix = dense_matrix(factor)
    outside = table - matrix @ torch.linalg.pinv(matrix) @ table
    assert left_over(table, factor) == pytest.approx(float(outside.square().sum() / table.square().sum()))
