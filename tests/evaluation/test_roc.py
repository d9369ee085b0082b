"""AUC, against scikit-learn and against pairs counted by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from helpers.draws import seeded
from helpers.scores import auc


def pairs_in_order(scores, labels):
    """The definition: over all pairs of a positive and a negative, 1 if in order, a half if tied."""
    positive, negative = scores[labels > 0.5], scores[labels <= 0.5]
    above = (positive[:, None] > negative[None]).double() + (positive[:, None] == negative[None]).double() / 2
    return float(above.mean())


@pytest.mark.parametrize("num_levels", [1, 2, 10, 10**6])  # from all tied to hardly any
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_auc_equals_scikit_learns_whatever_the_ties(num_levels, dtype):
    g = seeded(num_levels)
    scores = (torch.randint(num_levels, (5_000,), generator=g) / num_levels).to(dtype)
    labels = torch.bernoulli(0.2 + 0.6 * scores.double(), generator=g)
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores.double()), abs=1e-14)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_auc_is_the_share_of_pairs_in_order(rows):
    scores = torch.tensor([float(score) for score, _ in rows])
    labels = torch.tensor([float(label) for _, label in rows])
    if 0 < labels.sum() < len(labels):
        assert auc(scores, labels) == pytest.approx(pairs_in_order(scores, labels), abs=1e-15)


def test_auc_by_hand():
    labels = torch.tensor([0, 0, 1, 1])
    assert auc(torch.tensor([1, 2, 3, 4]), labels) == 1
    assert auc(torch.tensor([4, 3, 2, 1]), labels) == 0
    assert auc(torch.tensor([1, 1, 1, 1]), labels) == 0.5
    assert auc(torch.tensor([1, 3, 2, 4]), labels) == 3 / 4
    assert auc(torch.tensor([1, 2, 2, 4]), labels) == 3.5 / 4


def test_auc_does_not_care_for_the_order_of_rows_or_a_rising_function_of_scores():
    g = seeded()
    scores = torch.randn(1_000, dtype=torch.float64, generator=g)
    labels = (torch.rand(1_000, generator=g) < 0.3).float()
    shuffled = torch.randperm(1_000, generator=g)
    assert auc(scores[shuffled], labels[shuffled]) == auc(scores, labels)
    assert auc(scores.exp(), labels) == auc(scores, labels)
    assert auc(-scores, labels) == pytest.approx(1 - auc(scores, labels), abs=1e-15)


def test_auc_takes_labels_of_any_type():
    scores = torch.tensor([-9.0, 0.0, 9.0, 9.0])
    for dtype in (torch.bool, torch.int64, torch.float16):
        assert auc(scores, torch.tensor([0, 0, 1, 0]).to(dtype)) == 2.5 / 3


@pytest.mark.slow
def test_auc_is_exact_beyond_the_integers_of_float32():
    num_low = 2**23  # negatives below one tied pair
    scores, labels = torch.zeros(num_low + 2, dtype=torch.bool), torch.zeros(num_low + 2)
    scores[-2:] = True
    labels[-1] = 1
    assert auc(scores, labels) == (num_low + 0.5) / (num_low + 1)


def test_labels_of_one_kind_have_no_area():
    assert all(math.isnan(auc(torch.zeros(len(labels)), torch.tensor(labels))) for labels in ([1, 1, 1], [0, 0], []))
