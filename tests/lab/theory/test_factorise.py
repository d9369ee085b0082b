"""A table as a sparse A and a codebook: planted clusters are found, and more ones leave less over."""

import pytest
import torch

from cce_lab.theory import factorise
from helpers.draws import seeded
from helpers.theory import dense_matrix, normal


def left_over(table, factor):
    """What no codebook can give with this A, relative to the table."""
    matrix = dense_matrix(factor)
    return float((table - matrix @ torch.linalg.pinv(matrix) @ table).square().sum() / table.square().sum())


def test_k_means_finds_planted_clusters():
    clusters = torch.arange(60) % 3
    table = normal(3, 2)[clusters] * 10 + 0.01 * normal(60, 2, seed=1)
    best = min((factorise(table, 3, generator=seeded(seed)) for seed in range(5)), key=lambda f: left_over(table, f))
    rows = best.rows[:, 0]
    assert torch.equal(rows[:, None] == rows, clusters[:, None] == clusters)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_tiny_and_huge_tables_are_clustered_as_any(scale):
    table = normal(50, 3)
    plain = factorise(table, 5, generator=seeded())
    assert torch.equal(factorise(table * scale, 5, generator=seeded()).rows, plain.rows)


@pytest.mark.parametrize("way", ["k-means", "random-codebook"])
@pytest.mark.parametrize("num_ones", [1, 2, 4])
def test_rows_have_as_many_ones_as_asked_for(way, num_ones):
    factor = factorise(normal(50, 3), 8, num_ones=num_ones, way=way, generator=seeded())
    matrix = dense_matrix(factor)
    assert torch.equal(matrix.sum(dim=1), torch.full((50,), float(num_ones), dtype=torch.float64))
    assert float(matrix.max()) == 1


def test_two_ones_leave_less_over_than_one():
    table = normal(500, 4)
    one, two = (left_over(table, factorise(table, 32, num_ones=ones, generator=seeded())) for ones in (1, 2))
    assert two < 0.9 * one


def test_a_random_codebook_gives_the_nearest_rows_and_follows_the_size_of_the_table():
    table = normal(400, 2)
    factor = factorise(table, 16, way="random-codebook", generator=seeded())
    assert left_over(table, factor) < 0.25  # near ids share rows
    again = factorise(1000 * table, 16, way="random-codebook", generator=seeded())
    assert torch.equal(again.rows, factor.rows)
