"""Frozen collections: what the trained ones give, for single ids and for bags in all their forms."""

import pytest
import torch

import cce
from cce.serving.collection import bag_of_each
from helpers.frozen import finalized, make_batch, make_schema

FEATURES = {"user": 600, "item": 300}


def make(**options):
    return finalized(cce.EmbeddingCollection(FEATURES, 16, cap=3_000, seed=0, **options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pooling": "mean"},
        {"pooling": "mean", "padding_idx": 3},
        {"unified": True, "padding_idx": 2},
        {"method": "dhe"},
        {"method": {"user": "cce", "item": "tt"}},
    ],
    ids=str,
)
def test_vectors_are_those_of_the_trained_collection(options):
    trained = make(**options)
    frozen = cce.freeze(trained)
    single = make_batch(make_schema(multi_hot=False), 40)
    single.ids[:5] = 3
    torch.testing.assert_close(frozen(single.ids), trained(single.ids), rtol=0, atol=1e-6)
    bags = make_batch(make_schema(multi_hot=True), 40)
    bags.ids[::7] = 3
    expected = trained(bags.ids, bags.offsets)
    torch.testing.assert_close(frozen(bags.ids, bags.offsets), expected, rtol=0, atol=1e-6)
    (first, last), starts = bags.offsets[[0, 40]].tolist(), bags.offsets[40:80] - bags.offsets[40]
    by_name = {"user": bags.ids[first:last], "item": (bags.ids[last:], starts)}
    torch.testing.assert_close(frozen(by_name), expected, rtol=0, atol=1e-6)


def test_weights_go_with_bags():
    trained, bags = make(), make_batch(make_schema(multi_hot=True), 40)
    weights = torch.rand(len(bags.ids), generator=torch.Generator().manual_seed(0))
    expected = trained(bags.ids, bags.offsets, weights)
    torch.testing.assert_close(cce.freeze(trained)(bags.ids, bags.offsets, weights), expected, rtol=0, atol=1e-6)


def test_every_id_is_in_its_bag_and_bags_may_be_empty():
    starts = torch.tensor([0, 0, 2, 2, 5, 6])  # bags of 0, 2, 0, 3, 1 and 0 ids
    assert bag_of_each(starts, 6).tolist() == [1, 1, 3, 3, 3, 4]
    assert bag_of_each(torch.tensor([0, 0]), 0).tolist() == []


def test_bad_ids_are_rejected():
    with pytest.raises(ValueError, match=r"ids must name each feature once \(user, item\), got user\."):
        cce.freeze(make())({"user": torch.arange(3)})
    with pytest.raises(ValueError, match=r"ids must have shape \(batch, 2\), got \(3,\)"):
        cce.freeze(make())(torch.arange(3))


@pytest.mark.parametrize(
    "options", [{}, {"unified": True}, {"pooling": "mean", "padding_idx": 0}, {"method": "dhe"}], ids=str
)
def test_ids_that_a_feature_does_not_have_read_as_id_0(options):
    frozen = cce.freeze(make(**options))
    unknown, known = torch.tensor([[600, 299], [599, 300], [-1, 10**9]]), torch.tensor([[0, 299], [599, 0], [0, 0]])
    assert torch.equal(frozen(unknown), frozen(known))
    bags = torch.arange(7)  # of one id each
    assert torch.equal(frozen(unknown.T.reshape(-1), bags), frozen(known.T.reshape(-1), bags))
