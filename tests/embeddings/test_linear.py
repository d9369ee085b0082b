"""Linear tables are `T = H · M`, and their least squares are those of a dense solver."""

import pytest
import torch

from cce.embeddings import (
    CompositionalConcatEmbedding,
    CompositionalSumEmbedding,
    FullEmbedding,
    HashEmbedding,
    HashingTrickEmbedding,
    RobeEmbedding,
)
from cce.embeddings.linear import least_squares_codebook
from cce.indexing.ids import BLOCK
from helpers.draws import seeded

NUM_IDS, DIM = 40, 6


def weighted_hash_embedding():
    table = HashEmbedding(NUM_IDS, DIM, num_rows=9, num_hashes=3, weighted=True, num_weights=7, generator=seeded())
    with torch.no_grad():
        table.importance.copy_(torch.randn(7, 3, generator=seeded(1)))
    return table


TABLES = {
    "full": lambda: FullEmbedding(NUM_IDS, DIM, generator=seeded()),
    "hash": lambda: HashingTrickEmbedding(NUM_IDS, DIM, num_rows=9, generator=seeded()),
    "hash with signs": lambda: HashingTrickEmbedding(NUM_IDS, DIM, num_rows=9, signed=True, generator=seeded()),
    "hash with empty rows": lambda: HashingTrickEmbedding(NUM_IDS, DIM, num_rows=200, generator=seeded()),
    "hash-embedding": lambda: HashEmbedding(NUM_IDS, DIM, num_rows=9, num_hashes=3, generator=seeded()),
    "hash-embedding with weights": weighted_hash_embedding,
    "ce-concat": lambda: CompositionalConcatEmbedding(NUM_IDS, DIM, num_rows=5, num_columns=3, generator=seeded()),
    "ce-sum": lambda: CompositionalSumEmbedding(NUM_IDS, DIM, num_rows=5, generator=seeded()),
    "robe": lambda: RobeEmbedding(NUM_IDS, DIM, size=31, block_size=4, generator=seeded()),
}
every_table = pytest.mark.parametrize("make", TABLES.values(), ids=TABLES.keys())


def dense_h(table):
    """H of each column, `(columns, NUM_IDS, num_rows)`, entry by entry."""
    rows, weights = table.lookup(torch.arange(NUM_IDS))
    h = torch.zeros(rows.shape[1], NUM_IDS, len(table.codebook), dtype=torch.float64)
    for identity, columns in enumerate(rows.tolist()):
        for column, terms in enumerate(columns):
            for term, row in enumerate(terms):
                h[column, identity, row] += 1.0 if weights is None else weights[identity, column, term].item()
    return h


@every_table
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_least_squares_are_those_of_smallest_norm_that_a_dense_solver_finds(make, dtype):
    table = make().to(dtype)
    weight = torch.randn(NUM_IDS, DIM, generator=seeded(2), dtype=torch.float64)
    h = dense_h(table)
    stacked_h, stacked_weight = h.flatten(0, 1), torch.cat(weight.chunk(len(h), dim=1))
    expected = torch.linalg.pinv(stacked_h) @ stacked_weight
    codebook = least_squares_codebook(table, weight).detach()
    assert codebook.dtype is dtype
    assert torch.allclose(codebook.double(), expected, atol=1e-5)


@every_table
def test_a_table_that_the_method_can_hold_is_given_back(make):
    teacher, student = make(), make()
    with torch.no_grad():
        student.codebook.zero_()
    student.fit_to(teacher.to_dense())
    assert torch.allclose(student.to_dense(), teacher.to_dense(), atol=1e-5)


@every_table
def test_approximating_never_loses_to_the_start(make):
    table = make()
    weight = torch.randn(NUM_IDS, DIM, generator=seeded(2))
    before = (table.to_dense() - weight).square().sum()
    table.fit_to(weight)
    assert (table.to_dense() - weight).square().sum() < before
    assert table.codebook.requires_grad
    assert table.codebook.grad_fn is None


@pytest.mark.slow
def test_a_hashed_row_becomes_the_mean_of_its_ids_also_beyond_a_block():
    num_ids = BLOCK + 1000
    table = HashingTrickEmbedding(num_ids, 1, num_rows=3, generator=seeded())
    weight = torch.arange(num_ids, dtype=torch.float32).unsqueeze(-1) / num_ids
    table.fit_to(weight)
    rows = table.hash(torch.arange(num_ids)).squeeze(-1)
    means = [weight[rows == row].double().mean().item() for row in range(3)]
    assert table.codebook.flatten().tolist() == pytest.approx(means, rel=1e-5)
