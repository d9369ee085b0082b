"""Ids that come again and again are composed once, and nobody can tell."""

import pytest
import torch

import cce
from cce import compiled
from cce.kernels.cpu import LaunchPlan
from cce.kernels.cpu.deduplicate import CHUNK, SMALL_IDS
from helpers.linear_tables import TABLES, look_up, plain, run_forward, seeded, some_ids

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")

NUM_IDS = 3 * SMALL_IDS


def frequent(batch, share, seed=0):
    """Ids of which `share` are among the first ten, the rest anywhere."""
    anywhere = torch.randint(0, NUM_IDS, (batch,), generator=seeded(seed))
    few = torch.randint(0, 10, (batch,), generator=seeded(seed + 1))
    return torch.where(torch.rand(batch, generator=seeded(seed + 2)) < share, few, anywhere)


def kinds():
    options = {"generator": seeded(), "padding_idx": 3}
    yield cce.ClusteredEmbedding(NUM_IDS, 16, num_rows=300, **options)
    yield cce.ClusteredEmbedding(NUM_IDS, 20, num_rows=300, num_columns=1, **options)


@pytest.mark.parametrize("batch", [255, 256, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 300])
@pytest.mark.parametrize("share", [0.0, 0.6, 0.95, 1.0])
def test_any_share_of_frequent_ids_at_the_ends_of_chunks(batch, share):
    ids = frequent(batch, share)
    ids[-1], ids[0] = SMALL_IDS - 1, SMALL_IDS
    for table in kinds():
        vectors, expected = table(ids), plain(table, ids)
        assert torch.equal(vectors, expected)
        with torch.no_grad():
            assert torch.equal(table(ids), expected)
        upstream = torch.randn(vectors.shape, generator=seeded(1))
        found, right = (torch.autograd.grad(v, table.codebook, upstream)[0] for v in (vectors, expected))
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


def test_sparse_gradients_of_deduplicated_ids():
    ids = frequent(2 * CHUNK + 300, 0.9)
    table = cce.FullEmbedding(NUM_IDS, 16, sparse=True, padding_idx=3, generator=seeded())
    gradient = torch.autograd.grad(table(ids), table.codebook, torch.ones(len(ids), 16))[0]
    used, counts = torch.unique(ids[ids != 3], return_counts=True)
    assert torch.equal(gradient.indices()[0], used)
    assert torch.equal(gradient.values()[:, 0], counts.float())


@pytest.mark.parametrize("sparse", [False, True])
def test_threads_do_not_show_where_some_features_have_frequent_ids_and_others_do_not(num_threads, sparse):
    tables = list(kinds()) * 2
    columns = [frequent(3 * CHUNK + 7, share, seed) for seed, share in enumerate((1.0, 0.0, 0.6, 0.95))]
    ids, results = torch.stack(columns, dim=1), []
    for threads in (1, 2, 3):
        num_threads(threads)
        plan, codebooks = LaunchPlan([table.layout() for table in tables]), [table.codebook for table in tables]
        vectors = look_up(plan, ids, codebooks, sparse=sparse)
        gradients = torch.autograd.grad(vectors, codebooks, vectors.detach())
        results.append([vectors, *[gradient.to_dense() for gradient in gradients]])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@pytest.mark.parametrize("wrong", [-1, NUM_IDS])
def test_a_wrong_id_among_frequent_ones_is_named(wrong):
    ids = frequent(CHUNK + 300, 1.0)
    ids[CHUNK + 299] = wrong
    with pytest.raises(IndexError, match=f"got {wrong}"):
        next(kinds())(ids)


def test_a_wrong_id_that_is_small_is_named():
    table, ids = cce.FullEmbedding(5, 16, generator=seeded()), torch.zeros(CHUNK, dtype=torch.int64)
    ids[77] = 5
    with pytest.raises(IndexError, match=r"ids must lie in \[0, 5\), got 5"):
        table(ids)


def test_gradients_of_gradients_of_deduplicated_ids():
    table, ids = next(kinds()), frequent(CHUNK, 1.0)
    scale = torch.ones((), requires_grad=True)
    (first,) = torch.autograd.grad((table(ids) * scale).square().sum(), table.codebook, create_graph=True)
    (found,) = torch.autograd.grad(first.square().sum(), scale)
    (plainly,) = torch.autograd.grad((plain(table, ids) * scale).square().sum(), table.codebook, create_graph=True)
    torch.testing.assert_close(first, plainly, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found, torch.autograd.grad(plainly.square().sum(), scale)[0], rtol=1e-4, atol=1e-3)


def test_vectors_of_one_row_are_not_deduplicated():
    tables, ids = [TABLES["full"](), TABLES["cce"]()], some_ids(CHUNK + 300, 2, high=10)
    plan, codebooks = LaunchPlan([t.layout() for t in tables]), [t.codebook.detach() for t in tables]
    _, saved = run_forward(plan.bind(codebooks), ids, None)
    assert saved.listed.tolist() == [[0, 0], [10, 10]]
