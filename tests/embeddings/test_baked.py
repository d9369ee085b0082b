"""Baked tables: words of pointers in, sums of rows of the codebook out; nothing else is held."""

import copy
import pickle

import pytest
import torch

from cce.embeddings import BakedEmbedding
from cce.schema import Pointers

POINTERS = Pointers(num_columns=4, num_terms=2, num_rows=600, checksum="")  # words of 1 and 3 columns, 20 bits each
ROWS = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8], [599, 0, 599, 1, 0, 599, 2, 599]])  # of each column and term


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def words(rows):
    shifted = [row << 10 * slot for slot, row in zip([0, 1, *range(6)], rows.unbind(1), strict=True)]
    return torch.stack([sum(shifted[:2]), sum(shifted[2:])], dim=1)


@pytest.fixture
def table():
    return BakedEmbedding(10_000, 8, pointers=POINTERS, generator=seeded())


def test_vectors_are_sums_of_the_rows_that_words_name(table):
    codebook = torch.randn(4 * 2 * 600, 2, generator=seeded(1))
    table.take_codebook(codebook)
    tables = codebook.view(8, 600, 2)
    expected = [
        torch.cat([tables[2 * c][row[2 * c]] + tables[2 * c + 1][row[2 * c + 1]] for c in range(4)]) for row in ROWS
    ]
    assert torch.equal(table(words(ROWS)), torch.stack(expected))
    assert table(words(ROWS).view(1, 2, 2)).shape == (1, 2, 8)


def test_it_holds_a_codebook_and_no_pointers(table):
    assert table.num_params == 4 * 2 * 600 * 2
    assert (table.nbytes, table.pointer_nbytes) == (table.num_params * 4, 0)
    assert sorted(table.state_dict()) == ["words.0.codebook", "words.1.codebook"]
    assert table.to_dense(words(ROWS)).shape == (2, 8)


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_reach_the_rows_of_the_words_alone(sparse):
    table = BakedEmbedding(10_000, 8, pointers=POINTERS, sparse=sparse, generator=seeded())
    table(words(ROWS)[:1]).sum().backward()
    gradients = [word.codebook.grad for word in table.word_tables()]
    assert all(gradient.is_sparse == sparse for gradient in gradients)
    first, second = (gradient.to_dense().sum(1).nonzero().flatten().tolist() for gradient in gradients)
    assert first == [1, 602]
    assert second == [600 * slot + row for slot, row in enumerate([3, 4, 5, 6, 7, 8])]


@pytest.mark.parametrize("make", [copy.deepcopy, lambda table: pickle.loads(pickle.dumps(table))])
def test_a_copy_looks_up_by_itself(table, make):
    before = table(words(ROWS))
    other = make(table)
    with torch.no_grad():
        other.words[0].codebook.zero_()
    assert torch.equal(table(words(ROWS)), before)
    assert torch.equal(other(words(ROWS))[:, :2], torch.zeros(2, 2))


def test_what_it_cannot_take_is_rejected(table):
    with pytest.raises(ValueError, match=r"^words of pointers must be a Tensor of shape \(…, 2\), got \(3,\)\.$"):
        table(torch.arange(3))
    with pytest.raises(IndexError, match=r"^ids must lie in \[0, 1048576\), got 1048576\.$"):
        table(torch.tensor([[2**20, 0]]))
    with pytest.raises(TypeError, match=r"^a baked table has no ids"):
        table.fit_to(torch.zeros(10_000, 8))
    with pytest.raises(
        TypeError, match=r"^a baked table has the size of its pointers, and no budget, got num_params=9"
    ):
        BakedEmbedding.from_budget(10_000, 8, num_params=9, pointers=POINTERS)
