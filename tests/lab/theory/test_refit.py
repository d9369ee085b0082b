"""Exact refits: an id's wish is the best row it could have, and clusters of wishes are as good as clusters of T*."""

import pytest
import torch

from cce_lab.theory import clustered_optimum, refit_cce, sparse_cce
from cce_lab.theory.sparse import wanted_rows
from helpers.draws import seeded
from helpers.theory import normal, problem_of


def test_a_wish_is_the_best_row_of_its_id_while_the_others_stay():
    problem, table = problem_of(60, 8, 3), normal(8, 3)
    wanted = wanted_rows(problem, table)
    for i in range(8):
        others = table.clone()
        others[i] = 0
        best = torch.linalg.lstsq(problem.x[:, i : i + 1], problem.y - problem.x @ others).solution
        torch.testing.assert_close(wanted[i : i + 1], best)


def test_at_the_best_table_nobody_wants_anything_else():
    problem = problem_of(60, 8, 3)
    torch.testing.assert_close(wanted_rows(problem, problem.optimum), problem.optimum)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_refits_come_down_to_k_means_of_the_best_table_where_a_sketch_does_not(seed):
    problem = problem_of(1000, 100, 4, seed=seed).reduced
    best = min(clustered_optimum(problem, 10, generator=seeded(start)).excesses[-1] for start in range(5))
    run = refit_cce(problem, 10, num_steps=10, generator=seeded(seed))
    sketched = sparse_cce(problem, 10, num_steps=40, generator=seeded(seed))
    assert min(run.excesses) < 1.05 * best
    assert min(sketched.excesses[-10:]) > 1.1 * best
