"""Scores of a split, exact and streaming."""

import math

import pytest
import torch

from cce.data import PreparedData
from cce.evaluation import auc, binary_cross_entropy
from cce.training.building import build_model
from cce.training.scoring import score
from helpers.runs import tiny_config


@pytest.fixture
def scored(data):
    prepared = PreparedData.open(data)
    return build_model(tiny_config(data), prepared.schema), prepared


@pytest.mark.parametrize("streaming", [False, True])
def test_scores_are_those_of_all_rows_whatever_the_batches(scored, streaming):
    model, prepared = scored
    whole = next(iter(prepared.loader("validation", batch_size=1000, shuffle=False)))
    with torch.no_grad():
        logits = model(whole)
    for batch_size in (7, 100):
        loader = prepared.loader("validation", batch_size=batch_size, shuffle=False)
        found = score(model, loader, device=torch.device("cpu"), streaming=streaming)
        assert found.bce == pytest.approx(binary_cross_entropy(logits, whole.labels), abs=1e-6)
        assert found.auc == pytest.approx(auc(logits, whole.labels), abs=1e-3)
    assert model.training


def test_one_kind_of_label_has_a_bce_and_no_auc(scored):
    model, prepared = scored
    loader = prepared.loader("validation", batch_size=1, shuffle=False)
    found = score(model, [next(iter(loader))], device=torch.device("cpu"))
    assert found.bce > 0
    assert math.isnan(found.auc)
