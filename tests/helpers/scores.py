"""The score of some rows by the name of a metric."""

from cce.evaluation import ScoredRows, find_metric


def score_rows(name, logits, labels, weights=None):
    return find_metric(name).score(ScoredRows.of(logits, labels, weights))


def auc(logits, labels):
    return score_rows("auc", logits, labels)


def binary_cross_entropy(logits, labels, weights=None):
    return score_rows("bce", logits, labels, weights)
