"""Scores of parts add up to those of the whole."""

import pytest
import torch

from cce.evaluation import StreamingScores, auc, binary_cross_entropy


def rows(count=20_000):
    g = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(count, generator=g)
    return logits, torch.bernoulli(torch.sigmoid(logits), generator=g), torch.rand(count, generator=g)


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_give_the_scores_of_all_rows(weighted):
    logits, labels, weights = rows()
    scores = StreamingScores()
    for part in torch.arange(len(logits)).split(777):
        scores.add(logits[part], labels[part], weights[part] if weighted else None)
    known = weights if weighted else None
    assert scores.bce == pytest.approx(binary_cross_entropy(logits, labels, known), abs=1e-12)
    assert scores.auc == pytest.approx(auc(logits, labels, known), abs=1e-6)


def test_sums_of_two_processes_are_those_of_one():
    logits, labels, _ = rows(1000)
    one, two, both = StreamingScores(), StreamingScores(), StreamingScores()
    one.add(logits[:300], labels[:300])
    two.add(logits[300:], labels[300:])
    both.add(logits, labels)
    one.sums += two.sums
    assert one.auc == pytest.approx(both.auc, abs=1e-15)
    assert one.bce == pytest.approx(both.bce, abs=1e-12)


def test_logits_beyond_all_bounds_count_as_the_last_ones():
    scores = StreamingScores()
    scores.add(torch.tensor([-1e9, 1e9, 0.0]), torch.tensor([0.0, 1.0, 1.0]))
    assert scores.auc == 1


def test_labels_of_one_kind_have_no_area():
    scores = StreamingScores()
    scores.add(torch.zeros(3), torch.ones(3))
    with pytest.raises(ValueError, match="auc needs labels of both kinds, got 3 positive and 0 negative"):
        _ = scores.auc


def test_rows_that_are_not_numbers_are_rejected_with_their_position():
    scores = StreamingScores()
    scores.add(torch.zeros(3), torch.ones(3))
    with pytest.raises(
        ValueError, match="logits must be finite, got 1 of 2 that are not; the first, at position 4, is"
    ):
        scores.add(torch.tensor([0.0, float("nan")]), torch.ones(2))
