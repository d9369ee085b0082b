"""Binary cross-entropy and normalised entropy against scikit-learn, and by hand."""

import math

import pytest
import torch
from sklearn.metrics import log_loss

from helpers.draws import seeded
from helpers.scores import binary_cross_entropy, score_rows


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_bce_equals_scikit_learns(dtype):
    g = seeded()
    logits = 3 * torch.randn(2_000, generator=g, dtype=dtype)
    labels = torch.bernoulli(torch.sigmoid(logits), generator=g)
    expected = log_loss(labels, torch.sigmoid(logits.double()))
    assert binary_cross_entropy(logits, labels) == pytest.approx(expected, rel=1e-12)


def test_bce_is_the_formula_in_double_precision():
    logits, labels = torch.tensor([0.0, 2.0, -1.0]), torch.tensor([1, 0, 0])
    expected = (math.log(2) + math.log1p(math.exp(2)) + math.log1p(math.exp(-1))) / 3
    assert binary_cross_entropy(logits, labels) == pytest.approx(expected, rel=1e-15)


def test_bce_of_a_million_float32_rows_loses_no_digits():
    logits = torch.full((10**6,), 0.3)
    exact = math.log1p(math.exp(-float(logits[0])))
    assert binary_cross_entropy(logits, torch.ones(10**6)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("logit", "label", "loss"), [(1e4, 1, 0), (1e4, 0, 1e4), (-1e4, 1, 1e4), (-1e4, 0, 0)])
def test_bce_of_extreme_logits_stays_finite(logit, label, loss):
    assert binary_cross_entropy(torch.tensor([logit]), torch.tensor([label])) == loss


@pytest.mark.parametrize("weighted", [False, True])
def test_bce_and_normalized_entropy_of_weighted_rows_equal_scikit_learns(weighted):
    g = seeded()
    logits = torch.randn(2_000, generator=g, dtype=torch.float64)
    labels, weights = torch.bernoulli(torch.sigmoid(logits - 1), generator=g), torch.rand(2_000, generator=g)
    weights = weights if weighted else None
    loss = log_loss(labels, torch.sigmoid(logits), sample_weight=weights)
    rate = float(labels.mean()) if weights is None else float((labels * weights).sum() / weights.double().sum())
    constant = log_loss(labels, torch.full((2_000,), rate), sample_weight=weights)
    assert binary_cross_entropy(logits, labels, weights) == pytest.approx(loss, rel=1e-12)
    assert score_rows("normalized_entropy", logits, labels, weights) == pytest.approx(loss / constant, rel=1e-6)


def test_a_constant_prediction_of_the_mean_label_has_a_normalized_entropy_of_1():
    labels = torch.tensor([1.0, 0, 0, 0])
    logits = torch.full((4,), math.log(1 / 3), dtype=torch.float64)
    assert score_rows("normalized_entropy", logits, labels) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("label", [0, 1])
def test_labels_of_one_kind_have_no_normalized_entropy(label):
    assert math.isnan(score_rows("normalized_entropy", torch.zeros(3), torch.full((3,), label)))
