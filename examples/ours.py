"""A plug-in: `cce list methods --plugin examples/ours.py`."""

import dataclasses

import cce
from cce.data import SOURCES
from cce.evaluation import Better, MetricInfo


@cce.embeddings.register_method
class Renamed(cce.embeddings.HashingTrickEmbedding):
    """The hashing trick by another name."""

    method = "renamed"


def positives(rows):
    """The share of rows that are predicted to be positive."""
    return (rows.logits > 0).double().mean()


def small_dlrm(schema, tables):
    """A small DLRM."""
    return cce.models.DLRM(schema, tables, bottom=[8], top=[8])


cce.models.register_model("small-dlrm", small_dlrm)
cce.evaluation.register_metric(
    MetricInfo("positives", "positives", Better.ONE, "ours:positives", "share of positive predictions")
)
cce.data.register_source(dataclasses.replace(SOURCES["table"], name="ledger", about="our ledger, which is a table"))
