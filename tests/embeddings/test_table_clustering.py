import pytest
import torch

import cce

NUM_IDS, DIM = 2000, 16


def planted(num_vectors=60):
    """A quantised table whose ids have one of a few vectors."""
    g = torch.Generator().manual_seed(0)
    weight = torch.randn(num_vectors, DIM, generator=g)[torch.randint(0, num_vectors, (NUM_IDS,), generator=g)]
    table = cce.QuantizedEmbedding(NUM_IDS, DIM, bits=16, generator=g)
    table.fit_to(weight)
    return table


def test_vectors_that_codebooks_can_hold_are_found_again():
    table = planted()
    before = table.to_dense().clone()
    clustered = cce.cluster_table(table, num_columns=4, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(clustered.to_dense(), before, rtol=0, atol=1e-3)
    assert torch.equal(table.to_dense(), before)
    assert clustered.num_params == 256 * DIM
    assert clustered.pointer_nbytes == NUM_IDS * 4 + 4 * 24  # a byte for each id and column, and seeds


@pytest.mark.slow
def test_fewer_rows_are_farther_away():
    table = cce.QuantizedEmbedding(NUM_IDS, DIM, generator=torch.Generator().manual_seed(0))
    errors = [
        (cce.cluster_table(table, num_rows=k, generator=torch.Generator().manual_seed(1)).to_dense() - table.to_dense())
        .square()
        .mean()
        .item()
        for k in (256, 32, 4)
    ]
    assert errors[0] < 0.7 * errors[1] < 0.7 * errors[2] < 0.7 / (3 * DIM)


def test_any_table_can_be_clustered_and_trained_on():
    table = cce.create_embedding("full", NUM_IDS, DIM, seed=0, padding_idx=5, dtype=torch.bfloat16)
    clustered = cce.cluster_table(table, num_rows=16, num_columns=2, num_learned=500)
    assert clustered.codebook.dtype is torch.bfloat16
    assert clustered.padding_idx == 5
    assert (clustered.num_columns, clustered.assignments.num_learned) == (2, 500)
    clustered(torch.arange(10)).sum().backward()
    assert clustered.codebook.grad.any()
    clustered.cluster()


@pytest.mark.slow
def test_equal_generators_give_equal_tables():
    one, same = (cce.cluster_table(planted(300), num_rows=32, generator=torch.Generator().manual_seed(3)) for _ in "12")
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, same.state_dict()[name])


def test_what_is_no_table_is_rejected():
    with pytest.raises(TypeError, match="table must be an embedding table of cce, got Embedding"):
        cce.cluster_table(torch.nn.Embedding(10, 4))
