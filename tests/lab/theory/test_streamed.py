"""Dense CCE from a stream: the same tables as with X in memory, from one block of examples at a time."""

import pytest
import torch

from cce_lab.theory import Examples, LeastSquares, dense_cce, streamed_cce
from helpers.theory import normal, problem_of


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("block_size", [1, 7, 100])
def test_it_finds_the_tables_of_dense_cce_whatever_the_blocks(block_size):
    problem = problem_of(80, 12, 3)
    plain = dense_cce(problem, 7, num_steps=5, generator=generator())
    run = streamed_cce(Examples.of(problem, block_size), 7, num_steps=5, generator=generator())
    torch.testing.assert_close(run.table, plain.table)
    assert run.losses == pytest.approx(plain.losses[1:])
    assert run.losses[-1] == pytest.approx(problem.loss(run.table))


def test_examples_may_name_ids_instead_of_having_columns():
    ids, y = torch.randint(0, 20, (300, 2), generator=generator(1)), normal(300, 2)
    x = torch.nn.functional.one_hot(ids, 20).sum(1).double()
    named = Examples(lambda: [(ids[:100], y[:100]), (ids[100:], y[100:])], 20, 2)
    runs = [
        streamed_cce(e, 6, num_steps=4, generator=generator()) for e in (named, Examples.of(LeastSquares(x, y), 50))
    ]
    torch.testing.assert_close(runs[0].table, runs[1].table)
    assert runs[0].losses == pytest.approx(runs[1].losses)


def test_it_comes_down_to_the_best_table_in_one_pass_a_step():
    problem, passes = problem_of(200, 20, 2), []

    def blocks():
        passes.append(1)
        return zip(problem.x.split(64), problem.y.split(64), strict=True)

    run = streamed_cce(Examples(blocks, 20, 2), 10, num_steps=30, generator=generator())
    assert len(passes) == 30
    assert run.losses[-1] == pytest.approx(problem.floor, rel=1e-6)


def test_fewer_examples_than_rows_of_the_codebook_are_no_trouble():
    problem = LeastSquares(normal(4, 12), normal(4, 2, seed=1))
    run = streamed_cce(Examples.of(problem, 3), 8, num_steps=2, generator=generator())
    assert run.losses[-1] == pytest.approx(0, abs=1e-12)
