"""Metrics by name, and what every one of them must do."""

import math
import subprocess
import sys

import pytest
import torch

from cce.evaluation import (
    METRICS,
    Better,
    MetricInfo,
    ScoredRows,
    describe_metric,
    find_metric,
    format_scores,
    list_metrics,
    register_metric,
)

NAMES = list_metrics()


def made_rows(count=600, seed=0):
    """Rows with many ties, of which some weigh nothing."""
    g = torch.Generator().manual_seed(seed)
    logits = torch.randint(-6, 7, (count,), generator=g) / 2
    labels = torch.bernoulli(torch.sigmoid(logits), generator=g)
    weights = torch.randint(0, 4, (count,), generator=g).float()
    return ScoredRows(logits, labels, weights)


def score(name, rows):
    return find_metric(name).score(rows)


def test_there_are_the_metrics_of_the_docs():
    assert list_metrics() == ["bce", "auc", "normalized_entropy", "calibration", "ece"]


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_is_found_and_described(name):
    info = find_metric(name)
    assert info.name == name
    assert info.title
    assert info.about
    assert info.better is not Better.UNKNOWN


@pytest.mark.parametrize("name", NAMES)
def test_rows_in_any_order_have_one_score(name):
    rows = made_rows()
    whole = score(name, rows)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    assert score(name, rows[order]) == pytest.approx(whole, abs=1e-12)
    assert math.isfinite(whole)


@pytest.mark.parametrize("name", NAMES)
def test_only_ratios_of_weights_count_and_rows_of_weight_0_do_not(name):
    rows = made_rows()
    scaled = ScoredRows(rows.logits, rows.labels, 5 * rows.weights)
    expected = score(name, rows)
    assert score(name, scaled) == pytest.approx(expected, abs=1e-12)
    assert score(name, rows[rows.weights > 0]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_weights_count_like_repeated_rows(name):
    rows = made_rows()
    repeated = rows[torch.repeat_interleave(torch.arange(len(rows)), rows.weights.long())]
    once = ScoredRows(repeated.logits, repeated.labels, torch.ones(len(repeated)))
    assert score(name, once) == pytest.approx(score(name, rows), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_have_no_score(name):
    assert math.isnan(score(name, ScoredRows.concatenate([])))


@pytest.mark.parametrize("name", NAMES)
def test_better_predictions_have_a_smaller_loss(name):
    rows, info = made_rows(), find_metric(name)
    good = ScoredRows(20 * rows.labels - 10, rows.labels, rows.weights)
    bad = ScoredRows(7 - 12 * rows.labels, rows.labels, rows.weights)
    losses = [info.loss(score(name, each)) for each in (good, rows, bad)]
    assert losses[0] < losses[1] < losses[2]


def test_a_loss_is_less_where_a_score_is_better():
    assert find_metric("bce").loss(0.5) == 0.5
    assert find_metric("auc").loss(0.75) == -0.75
    assert find_metric("calibration").loss(0.75) == find_metric("calibration").loss(1.25) == 0.25
    assert math.isnan(describe_metric("profit").loss(1.0))


def test_scores_are_written_by_title():
    scores = {"bce": 0.451234, "ece": 0.5, "profit": 2.0, "auc": math.nan}
    assert format_scores(scores) == "BCE 0.45123, ECE 0.50000, profit 2.00000, AUC –"


def mean_logit(rows):
    return rows.logits.mean()


def test_a_metric_of_ones_own_is_one_function_and_one_line(monkeypatch):
    monkeypatch.setattr("cce.evaluation.registry.METRICS", dict(METRICS))
    register_metric(MetricInfo("mean_logit", "mean logit", Better.LOWER, f"{__name__}:mean_logit"))
    assert score("mean_logit", made_rows()) == pytest.approx(float(made_rows().logits.mean()))
    with pytest.raises(ValueError, match="name of a metric must be new, got 'mean_logit'"):
        register_metric(MetricInfo("mean_logit", "again", Better.LOWER))
    for name in ("", "step"):
        with pytest.raises(ValueError, match="name of a metric must be a word, and none of"):
            register_metric(MetricInfo(name, "no", Better.LOWER))


def test_names_are_checked_without_torch():
    code = (
        "import sys\nfrom cce.evaluation import check_metrics\ncheck_metrics(['auc'])\nsys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
