"""Frozen tables: the vectors of the trained ones, for any shape of ids."""

import pytest
import torch

from cce.embeddings import METHODS
from cce.serving import freeze_table
from cce_lab.variants import VARIANTS
from helpers.frozen import CASES, DIM, FORMS, NUM_IDS, make_table

IDS = torch.arange(NUM_IDS)


def test_there_is_a_case_for_every_method():
    assert set(FORMS) == {*METHODS, *(kind.method for kind in VARIANTS)}


@pytest.mark.parametrize(("method", "options"), CASES, ids=str)
def test_vectors_are_those_of_the_trained_table(method, options):
    table = make_table(method, options)
    frozen = freeze_table(table)
    torch.testing.assert_close(frozen.embed(IDS[10:]), table.to_dense()[10:], rtol=0, atol=1e-7)
    torch.testing.assert_close(frozen(IDS), table.to_dense(), rtol=0, atol=1e-7)
    assert frozen(IDS.int().view(2, -1)).shape == (2, NUM_IDS // 2, DIM)
    assert frozen(IDS[:0]).shape == (0, DIM)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


@pytest.mark.parametrize("method", ["collide", "cce-settle"])
def test_a_table_that_was_clustered_gives_its_vectors_to_the_bit(method):
    table = make_table(method, {})
    table.cluster(generator=torch.Generator().manual_seed(0))
    assert torch.equal(freeze_table(table)(IDS), table.to_dense())


@pytest.mark.parametrize("method", ["cce", "dhe"])
def test_an_id_that_the_table_does_not_have_reads_as_id_0(method):
    frozen = freeze_table(make_table(method, {}))
    assert torch.equal(frozen(torch.tensor([5, -1, NUM_IDS, 2**62])), frozen(torch.tensor([5, 0, 0, 0])))
    with pytest.raises(TypeError, match="ids must be int32 or int64"):
        frozen(torch.tensor([0.0]))


def test_bytes_are_those_of_all_that_is_stored():
    frozen = freeze_table(make_table("pq", {}))
    assert frozen.nbytes == sum(tensor.nbytes for tensor in frozen.tensors().values())
    assert set(frozen.tensors()) == {"rows.values", "groups.0.words"}
    assert f"nbytes={frozen.nbytes}" in repr(frozen)
