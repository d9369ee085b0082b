"""Every wrong argument of the Python API gives one clear line: what the argument is, the rule, and the value.

`bad_input.txt` holds the calls, each followed by the error that it must raise, word for word. After each, nothing is
left behind: models, tables and optimizers are as they were, and no file was made.
"""

import copy
import functools
import math
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import cce
from cce.clustering import ProductQuantizer, kmeans, nearest_centroid, sample_ids
from cce.schema import Batch, Feature, Schema
from cce.training import TrainConfig
from cce.training.session import create_optimizer, set_learning_rate
from cce_lab import theory

LINES = (Path(__file__).parent / "bad_input.txt").read_text(encoding="utf-8").splitlines()
CASES = [
    pytest.param(call, *error.strip().split(": ", 1), id=call)
    for call, error in pairwise(LINES)
    if error.startswith("    ")
]
KINDS = ("ValueError", "BudgetTooSmallError", "TypeError", "IndexError", "FileNotFoundError")
RULE = re.compile(r"must|give |needs?|go(es)? with|follows from|has no option|cannot|can be|could not|names")
SCHEMA = Schema((Feature("a", 100), Feature("b", 50), Feature("c", 20)), dense=("x", "y"))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.users = torch.nn.Embedding(1000, 16)
        self.items = torch.nn.Embedding(900, 12)


@functools.cache
def objects() -> dict:
    """What the calls share; a case that changed any of it would fail."""
    torch.manual_seed(0)
    model, clusterable = Model(), cce.embeddings.ClusteredEmbedding(100, 4, num_rows=5)
    table, tables = (
        cce.embeddings.ClusteredEmbedding(1000, 16, num_rows=20),
        cce.EmbeddingCollection(SCHEMA.vocabulary_sizes, 4),
    )
    clustered_once = cce.embeddings.CollidingEmbedding(100, 8, num_rows=5)
    clustered_once.cluster()
    return {
        "table": table,
        "bag": cce.embeddings.EmbeddingBag(copy.deepcopy(table), mode="sum"),
        "mean_bag": cce.embeddings.EmbeddingBag(copy.deepcopy(table)),
        "whole_bag": cce.embeddings.EmbeddingBag(copy.deepcopy(table), mode="sum", include_last_offset=True),
        "dhe": cce.embeddings.DeepHashEmbedding(1000, 16, width=3),
        "weighted": cce.embeddings.HashEmbedding(1000, 16, num_rows=5, weighted=True),
        "clustered_once": clustered_once,
        "collection": cce.EmbeddingCollection({"user": 1000, "item": 500}, 16, method="cce-paper", cap=1000),
        "rows": cce.embeddings.CCEEmbedding(1000, 16),
        "open_rows": cce.embeddings.CCEEmbedding(None, 16),
        "collection_of_rows": cce.EmbeddingCollection({"user": 9000, "item": 5000}, 16),
        "model": model,
        "adam": torch.optim.Adam(model.parameters()),
        "clusterable": clusterable,
        "sgd": torch.optim.SGD(clusterable.parameters(), lr=0.1),
        "tables": tables,
        "dlrm": cce.models.DLRM(SCHEMA, tables, bottom=[4], top=[4]),
        "event": copy.deepcopy(clusterable).cluster(),
        "points": torch.arange(18.0).view(9, 2),
        "problem": theory.LeastSquares(torch.randn(20, 6), torch.randn(20, 2)),
    }


@functools.cache
def names() -> dict:
    """All that a call may name."""
    packages = (cce.plugins, cce.hashing, cce.footprint, cce.budget, cce.evaluation, cce.data, cce.collection)
    packages += (cce.indexing, cce.diagnostics, cce.reclustering, cce.models, cce.clustering, cce.embeddings, cce)
    public = {name: getattr(package, name) for package in packages for name in dir(package) if name[0] != "_"}
    tools = {"torch": torch, "theory": theory, "nan": math.nan, "inf": math.inf, "generator": torch.Generator}
    tools |= {"ids": lambda values: torch.tensor(values, dtype=torch.int64), "schema": SCHEMA}
    others = (kmeans, nearest_centroid, sample_ids, ProductQuantizer, Batch, Feature, Schema, TrainConfig)
    others += (create_optimizer, set_learning_rate)
    return public | tools | {each.__name__: each for each in others} | objects()


def snapshot() -> dict:
    """Everything that a call could have changed, as plain values."""
    found = {"files": os.listdir()}
    for name, value in objects().items():
        if isinstance(value, torch.nn.Module):
            modules = [(path, type(module).__name__, module.training) for path, module in value.named_modules()]
            state = {key: tensor.numpy().tobytes() for key, tensor in value.state_dict().items()}
            found[name] = (modules, state, [parameter.requires_grad for parameter in value.parameters()])
        elif isinstance(value, torch.optim.Optimizer):
            groups = [[id(parameter) for parameter in group["params"]] for group in value.param_groups]
            found[name] = (groups, len(value.state))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("call", "kind", "message"), CASES)
def test_a_bad_input_gives_one_clear_line_and_leaves_nothing_behind(call, kind, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects()
    before = snapshot()
    with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is what is tested
        eval(call, names())
    assert type(caught.value).__name__ == kind
    assert str(caught.value) == message
    assert snapshot() == before


def test_there_are_many_cases_and_every_message_is_a_rule_in_one_line():
    assert len(CASES) >= 515
    assert len(CASES) == sum(not line.startswith((" ", "#")) for line in LINES if line)
    assert len({case.id for case in CASES}) == len(CASES)
    for case in CASES:
        call, kind, message = case.values
        assert kind in KINDS, call
        assert message.endswith("."), message
        assert not message.endswith(".."), message
        assert RULE.search(message), message
