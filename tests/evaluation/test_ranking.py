"""NDCG and recall of the first k against scikit-learn, and against all orders of tied rows."""

import math
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from cce.evaluation import ScoredRows, find_metric


def score(name, logits, labels, groups, weights=None):
    metric = find_metric(name).create()
    metric.add(ScoredRows.of(logits, labels, weights, groups))
    return metric.compute()


def gain(name, ranked, k):
    """Of labels in their order, by the definition."""
    if name == "recall":
        return sum(ranked[:k]) / sum(ranked)
    worth = [label / math.log2(rank + 2) for rank, label in enumerate(ranked[:k])]
    best = [label / math.log2(rank + 2) for rank, label in enumerate(sorted(ranked, reverse=True)[:k])]
    return sum(worth) / sum(best)


def mean_over_orders(name, logits, labels, k):
    """All orders of the rows in which no logit comes before a greater one."""
    orders = [
        order
        for order in permutations(range(len(logits)))
        if all(logits[first] >= logits[last] for first, last in pairwise(order))
    ]
    return float(np.mean([gain(name, [labels[row] for row in order], k) for order in orders]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ndcg", "recall"])
@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=6),
    k=st.integers(1, 7),
)
def test_a_query_scores_the_mean_over_all_orders_of_its_ties(name, rows, k):
    logits, labels = [row[0] for row in rows], [row[1] for row in rows]
    found = score(f"{name}@{k}", torch.tensor(logits).float(), torch.tensor(labels), torch.zeros(len(rows)).long())
    if sum(labels):
        assert found == pytest.approx(mean_over_orders(name, logits, labels, k), abs=1e-12)
    else:
        assert math.isnan(found)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("num_levels", [3, 10**6])
@pytest.mark.parametrize("k", [1, 5, 100])
def test_ndcg_equals_scikit_learns_query_by_query(k, num_levels, weighted):
    g = torch.Generator().manual_seed(k)
    logits = torch.randint(num_levels, (2_000,), generator=g) / num_levels
    labels, groups = (torch.rand(2_000, generator=g) < 0.2).float(), torch.randint(-1, 300, (2_000,), generator=g)
    weights = 0.1 + torch.rand(2_000, generator=g) if weighted else torch.ones(2_000)
    scores, heavy = [], []
    for group in range(300):
        mine = groups == group
        if labels[mine].sum() and mine.sum() > 1:
            scores.append(ndcg_score(labels[mine][None].numpy(), logits[mine][None].numpy(), k=k))
            heavy.append(float(weights[mine].double().mean()))
        elif labels[mine].sum():
            scores.append(1.0)  # scikit-learn knows no query of one row
            heavy.append(float(weights[mine].double().mean()))
    assert len(scores) > 150
    expected = float(np.average(scores, weights=heavy))
    assert score(f"ndcg@{k}", logits, labels, groups, weights) == pytest.approx(expected, abs=1e-12)


def test_recall_counts_positives_among_the_first_k_rows_of_each_query():
    logits = torch.tensor([9.0, 8.0, 7.0, 6.0, 3.0, 2.0, 1.0])
    labels = torch.tensor([1, 0, 1, 1, 0, 0, 1])
    groups = torch.tensor([4, 4, 4, 4, 2, 2, 2])
    assert score("recall@1", logits, labels, groups) == pytest.approx((1 / 3 + 0) / 2)
    assert score("recall@3", logits, labels, groups) == pytest.approx((2 / 3 + 1) / 2)
    assert score("recall@100", logits, labels, groups) == 1


def test_queries_without_positives_and_rows_without_a_query_are_left_out():
    logits, labels = torch.tensor([1.0, 2.0, 5.0, 9.0]), torch.tensor([1, 0, 0, 1])
    groups = torch.tensor([3, 3, 6, -1])
    for name in ("ndcg@2", "recall@2"):
        assert score(name, logits, labels, groups) == score(name, logits[:2], labels[:2], groups[:2])
        assert math.isnan(score(name, logits[2:], labels[2:], groups[2:]))


def test_a_query_weighs_the_mean_weight_of_its_rows():
    logits, labels = torch.tensor([2.0, 1.0, 1.0, 2.0, 0.0]), torch.tensor([1, 0, 1, 0, 0])
    groups, weights = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([3.0, 3.0, 1.0, 1.0, 0.0])
    assert score("recall@1", logits, labels, groups, weights) == pytest.approx(3 / 4)
