"""The paper's appendix "Table Collapse": entropies of pointers of CE, CCE, product quantisation, circular clustering.

Every id has the vector of its group plus noise, and groups have sizes by Zipf's law. CE, CCE and circular clustering
learn these vectors, the last two clustered in between; product quantisation is given them. `results/theory` has a
larger run of the same.
"""

import math

import pytest
import torch

from cce.clustering import column_entropies
from cce.embeddings import ClusteredEmbedding, CompositionalConcatEmbedding, ProductQuantizedEmbedding
from cce_lab.variants import CircularEmbedding

pytestmark = pytest.mark.slow
NUM_IDS, NUM_ROWS, NUM_CLUSTERINGS = 300, 24, 12
KINDS = {
    "CE": CompositionalConcatEmbedding,
    "CCE": ClusteredEmbedding,
    "PQ": ProductQuantizedEmbedding,
    "circular": CircularEmbedding,
}


def entropies(table):
    """H1 and H2 of the hashed or learned pointers; helpers of CCE do not count."""
    pointers = table.split if isinstance(table, CompositionalConcatEmbedding) else table.assignments
    return column_entropies(pointers(torch.arange(NUM_IDS)), 2)


def train(table, vectors):
    optimizer = torch.optim.Adam(table.parameters(), lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(table(torch.arange(NUM_IDS)), vectors).backward()
        optimizer.step()


@pytest.fixture(scope="module")
def found():
    """For each method its entropies before the first and after each clustering, and what it misses of the vectors."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.multinomial(1 / torch.arange(1, 17), NUM_IDS, replacement=True, generator=generator)
    centers = torch.randn(16, 16, generator=generator)
    vectors = centers[groups] + 0.3 * torch.randn(NUM_IDS, 16, generator=generator)
    options = {"num_rows": NUM_ROWS, "num_columns": 4, "start_scale": "uniform", "generator": generator}
    results = {}
    for name, kind in KINDS.items():
        table, lines = kind(NUM_IDS, 16, **options), []
        for index in range(NUM_CLUSTERINGS + 1):
            if name == "PQ":
                table.fit_to(vectors, generator=generator)
            else:
                if index and isinstance(table, ClusteredEmbedding):
                    table.cluster(generator=generator)
                train(table, vectors)
            lines.append(entropies(table))
        with torch.no_grad():
            results[name] = lines, float((table.to_dense() - vectors).square().sum() / vectors.square().sum())
    return results


def test_all_start_from_random_pointers_as_ce_has_them(found):
    h1, h2 = found["CE"][0][-1]
    assert h1 > 0.97 * math.log(NUM_ROWS)
    assert h2 > 0.93 * math.log(NUM_IDS)  # 300 ids in 576 pairs of rows: some share a pair by chance
    for name in ("CCE", "circular"):
        assert found[name][0][0][1] == pytest.approx(h2, rel=0.03)


def test_circular_clustering_makes_columns_alike_and_cce_does_not(found):
    ends = {name: lines[-1][1] for name, (lines, _) in found.items()}
    assert ends["circular"] < 0.95 * ends["PQ"]
    assert ends["PQ"] < ends["CCE"] < ends["CE"]


def test_cce_misses_less_of_the_vectors_than_ce_and_circular_clustering(found):
    errors = {name: error for name, (_, error) in found.items()}
    assert errors["PQ"] < errors["CCE"] < min(errors["CE"], errors["circular"])
