"""Bags of several features are concatenated and checked."""

import pytest
import torch

from cce.collection.features import check_bags, join_bags

IDS = torch.tensor([4, 5, 6])


def test_features_are_joined_one_after_the_other():
    ids, offsets, weights = join_bags([(IDS, torch.tensor([0, 3, 3])), torch.tensor([1, 2])])
    assert ids.tolist() == [4, 5, 6, 1, 2]
    assert offsets.tolist() == [0, 3, 3, 4, 5]
    assert weights is None


def test_features_without_weights_count_once_beside_those_that_have_some():
    joined = join_bags([(IDS, torch.tensor([0, 2, 3]), torch.tensor([0.5, 2, 3])), torch.tensor([1, 2])])
    assert joined[2].tolist() == [0.5, 2, 3, 1, 1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([(IDS, torch.tensor([0, 1])), torch.tensor([1, 2])], r"batch \+ 1 values, got batches of \[1, 2\]"),
        ([(IDS, torch.tensor([0, 1, 2])), torch.tensor([1, 2])], "rise from 0 to the number of ids, 3"),
        ([(IDS, torch.tensor([], dtype=torch.int64))], "rise from 0 to the number of ids, 3"),
    ],
)
def test_offsets_that_do_not_end_with_the_ids_are_rejected(columns, message):
    with pytest.raises(ValueError, match=message):
        join_bags(columns)


def test_the_size_of_the_batch():
    assert check_bags(IDS, torch.tensor([0, 1, 1, 2, 3]), None, 2) == 2
    assert check_bags(IDS[:0], torch.tensor([0]), None, 2) == 0
    with pytest.raises(ValueError, match="features · batch"):
        check_bags(IDS[:0], torch.tensor([], dtype=torch.int64), None, 1)
