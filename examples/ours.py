"""A plug-in: `cce list methods --plugin examples/ours.py`."""

import dataclasses

import torch

import cce
from cce.data import SOURCES
from cce.evaluation import Better, MetricInfo, SummedMetric


@cce.embeddings.register_method
class Renamed(cce.embeddings.HashingTrickEmbedding):
    """The hashing trick by another name."""

    method = "renamed"


class Positives(SummedMetric):
    """The share of rows that are predicted to be positive."""

    num_sums = 2

    def sums_of(self, rows):
        return torch.tensor([(rows.logits > 0).sum(), len(rows.labels)], dtype=torch.float64)

    def compute(self):
        return float(self.sums[0] / self.sums[1])


def small_dlrm(schema, tables):
    """A small DLRM."""
    return cce.models.DLRM(schema, tables, bottom=[8], top=[8])


cce.models.register_model("small-dlrm", small_dlrm)
cce.evaluation.register_metric(
    MetricInfo("positives", "positives", Better.ONE, "ours:Positives", "share of positive predictions")
)
cce.data.register_source(dataclasses.replace(SOURCES["table"], name="ledger", about="our ledger, which is a table"))
