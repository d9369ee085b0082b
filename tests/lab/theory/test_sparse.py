"""Sparse CCE: Algorithm 2, its clusters and its codebook, against k-means of the best table."""

import pytest
import torch

from cce_lab.theory import LeastSquares, clustered_optimum, count_sketch, factorise, sparse_cce
from helpers.draws import seeded
from helpers.theory import dense_matrix, normal, planted_problem, problem_of


def test_steps_are_the_papers():
    """[A | C] as dense matrices, with the codebook fitted by the pseudo-inverse."""
    problem = problem_of(80, 20, 2).reduced
    run = sparse_cce(problem, 5, num_steps=3, generator=seeded())
    table, numbers = torch.zeros(20, 2, dtype=torch.float64), seeded()
    for excess in run.excesses[1:]:
        clusters = dense_matrix(factorise(table, 5, generator=numbers))
        factor = torch.cat([clusters, dense_matrix(count_sketch(20, 5, generator=numbers))], dim=1)
        table = factor @ torch.linalg.pinv(problem.x @ factor) @ problem.y
        assert excess == pytest.approx(problem.excess(table), rel=1e-6)


def test_losses_are_those_of_the_tables():
    problem = problem_of(80, 20, 2)
    run = sparse_cce(problem, 6, num_steps=4, num_ones=2, generator=seeded())
    assert run.losses[-1] == pytest.approx(problem.loss(run.table))


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [16, 32])
@pytest.mark.parametrize("seed", range(2))
def test_on_an_easy_instance_it_comes_within_a_hundredth_of_k_means_of_the_optimum(seed, num_rows):
    """Easy: four planted clusters for k = 16, and 40 examples for each id.

    The baseline is the best of five starts, in k rows and in the 2k that sparse CCE has in all. With 10 examples for
    each id, rows to spare fit noise, which k-means of the optimum does better: it is then 2 to 3.3 % below in 2k rows.
    """
    problem, _ = planted_problem(4000, 100, 4, num_clusters=4, noise=1.0, seed=seed)
    best = min(clustered_optimum(problem, num_rows, generator=seeded(start)).losses[-1] for start in range(5))
    run = sparse_cce(problem, 16, num_steps=40, generator=seeded(seed))
    assert run.losses[1] > 10 * best  # there was something to find
    assert max(run.losses[-5:]) < 1.01 * best


@pytest.mark.slow
def test_it_does_not_stay_at_the_best_table_if_that_has_no_clusters():
    """Why it ends above k-means of the optimum where there is nothing to find: it even leaves a start at `T*`.

    A bucket of the sketch has d1 / k ids, and what it tells of one of them is mostly of the others.
    """
    problem = problem_of(500, 100, 4).reduced
    ends = {}
    for num_rows in (5, 20):
        run = sparse_cce(problem, num_rows, num_steps=40, start=problem.optimum, generator=seeded())
        best = min(clustered_optimum(problem, num_rows, generator=seeded(seed)).excesses[-1] for seed in range(5))
        assert run.excesses[0] < 1e-9 * problem.signal
        assert run.excesses[1] < best  # the first clusters are those of T*, and the sketch adds to them
        ends[num_rows] = sum(run.excesses[-10:]) / 10 / best
        assert ends[num_rows] * best > 1.1 * run.excesses[1]
    assert ends[5] > 1.1
    assert ends[20] < ends[5]


@pytest.mark.slow
def test_planted_clusters_are_kept():
    problem, _ = planted_problem(1000, 100, 4, num_clusters=4, seed=0)
    run = sparse_cce(problem, 16, num_steps=10, start=problem.optimum, generator=seeded())
    assert max(run.excesses) < 1e-9 * problem.signal


@pytest.mark.slow
def test_clustering_is_what_makes_it_converge():
    """A sketch alone, as in the first step, stays where it starts."""
    problem, _ = planted_problem(1000, 100, 4, num_clusters=4, noise=1.0)
    run = sparse_cce(problem, 16, num_steps=40, generator=seeded())
    assert run.losses[1] > 10 * run.losses[-1]


@pytest.mark.slow
def test_k_means_of_a_planted_optimum_is_the_optimum():
    problem, _ = planted_problem(300, 60, 4, num_clusters=3)
    best = min(clustered_optimum(problem, 6, generator=seeded(seed)).excesses[-1] for seed in range(5))
    assert best < 1e-12 * problem.signal


def test_fewer_examples_than_ids_are_no_trouble():
    problem = LeastSquares(normal(20, 50), normal(20, 2, seed=1))
    run = sparse_cce(problem, 4, num_steps=3, generator=seeded())
    assert bool(run.table.isfinite().all())
    assert run.excesses[-1] < problem.signal
