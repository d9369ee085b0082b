"""The door to lookups: the same answer by whichever way."""

import pytest
import torch

from cce import compiled
from cce.kernels import fused, look_up
from helpers.linear_tables import TABLES, plain, seeded, some_ids


@pytest.mark.parametrize("name", ["cce", "full", "robe", "ce-sum"])
@pytest.mark.parametrize("sparse", [False, True])
def test_compiled_loops_and_plain_torch_give_the_same_bits(monkeypatch, name, sparse):
    table, ids = TABLES[name](), some_ids(300)
    results = []
    for available in (compiled.available, False):
        monkeypatch.setattr(compiled, "available", available)
        monkeypatch.setattr(compiled, "warn_plain", lambda: None)
        vectors = look_up(table.layout(), table.codebook, ids, sparse=sparse)
        upstream = torch.randn(vectors.shape, generator=seeded(1))
        gradient = torch.autograd.grad(vectors, table.codebook, upstream)[0]
        assert gradient.is_sparse is sparse
        results.append((vectors, gradient.to_dense()))
    torch.testing.assert_close(results[0], results[1])
    assert torch.equal(results[0][0], plain(table, ids))


def test_other_number_types_go_to_plain_torch():
    table, ids = TABLES["cce"](), some_ids(30)
    codebook = table.codebook.detach().to(torch.complex64)
    assert not fused.usable((codebook,), ids)
    assert torch.equal(look_up(table.layout(), codebook, ids).real, plain(table, ids))


def test_that_numba_is_missing_is_said_once(monkeypatch):
    table, ids = TABLES["cce"](), some_ids(30)
    monkeypatch.setattr(compiled, "available", False)
    compiled.warn_plain.cache_clear()
    with pytest.warns(UserWarning, match="cce runs in plain torch, many times slower than compiled loops"):
        table(ids)
    table(ids)  # warnings are errors
