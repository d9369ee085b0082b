"""What an accumulator keeps."""

import torch

from cce.evaluation import ScoredRows, SummedMetric, WholeMetric


class CountRows(SummedMetric):
    num_sums = 1

    def sums_of(self, rows):
        return torch.tensor([len(rows)], dtype=torch.float64)

    def compute(self):
        return float(self.sums[0])


class LastLogit(WholeMetric):
    def score(self, rows):
        return float(rows.logits[-1])


def rows(*logits):
    return ScoredRows.of(torch.tensor(logits), torch.zeros(len(logits)))


def test_a_metric_of_sums_keeps_no_rows():
    metric = CountRows()
    metric.add(rows(1.0, 2.0))
    metric.add(rows(3.0))
    assert metric.compute() == 3
    assert set(vars(metric)) == {"sums"}


def test_a_metric_of_all_rows_sees_them_in_their_order_and_may_be_asked_again():
    metric = LastLogit()
    metric.add(rows(1.0, 2.0))
    assert metric.compute() == 2
    metric.add(rows(3.0))
    assert metric.compute() == 3
