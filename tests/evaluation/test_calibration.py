"""Calibration, its error by bin against plain loops."""

import math

import numpy as np
import pytest
import torch

from helpers.scores import score_rows as score


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def rows(request):
    g = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3_000, generator=g)
    labels = torch.bernoulli(torch.sigmoid(logits / 2), generator=g)
    return logits, labels, torch.rand(3_000, generator=g) if request.param else None


def as_numpy(rows):
    logits, labels, weights = rows
    weights = torch.ones(len(logits)) if weights is None else weights
    return (1 / (1 + np.exp(-logits.double().numpy()))), labels.double().numpy(), weights.double().numpy()


def test_calibration_is_the_mean_prediction_over_the_mean_label(rows):
    predicted, labels, weights = as_numpy(rows)
    expected = np.average(predicted, weights=weights) / np.average(labels, weights=weights)
    assert score("calibration", *rows) == pytest.approx(expected, rel=1e-12)


def test_the_calibration_error_is_the_mean_gap_of_15_bins(rows):
    predicted, labels, weights = as_numpy(rows)
    error = 0.0
    for index in range(15):
        mine = (predicted >= index / 15) & (predicted < (index + 1) / 15)
        if mine.any():
            gap = np.average(predicted[mine], weights=weights[mine]) - np.average(labels[mine], weights=weights[mine])
            error += abs(gap) * weights[mine].sum() / weights.sum()
    assert score("ece", *rows) == pytest.approx(error, rel=1e-9)
    assert error > 0.05


def test_by_hand():
    logits, labels = torch.tensor([0.0, 0.0, 0.0, 0.0]), torch.tensor([1, 0, 0, 0])
    assert score("calibration", logits, labels) == 2
    assert score("ece", logits, labels) == 0.25


def test_certain_predictions_lie_in_the_last_bins():
    logits, labels = torch.tensor([100.0, -100.0]), torch.tensor([1, 0])
    assert score("ece", logits, labels) == pytest.approx(0, abs=1e-12)
    assert score("ece", -logits, labels) == pytest.approx(1, abs=1e-12)


def test_labels_of_one_kind_have_an_error_but_without_positives_no_ratio():
    assert math.isnan(score("calibration", torch.zeros(3), torch.zeros(3)))
    assert score("calibration", torch.zeros(3), torch.ones(3)) == 0.5
    assert score("ece", torch.zeros(3), torch.zeros(3)) == 0.5
