"""Linear tables are `T = H · M`."""

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
def test_a_table_equals_its_dense_product(make):
    table = make()
    expected = torch.cat([h @ table.codebook.detach().double() for h in dense_h(table)], dim=1)
    assert torch.allclose(table.to_dense().double(), expected, atol=1e-6)


def test_a_full_table_becomes_a_trained_one_of_its_shape():
    table, weight = TABLES["full"](), torch.randn(NUM_IDS, DIM, generator=seeded(2))
    table.fit_to(weight)
    assert torch.equal(table.to_dense(), weight)
