"""Random ratings of 30 users and 20 items, and models of them."""

import numpy as np
import torch
from torch import nn

from cce import EmbeddingCollection, finalize
from cce.embeddings import CCEEmbedding
from cce.models import create_model
from cce.schema import Batch, Feature, Schema

DIM = 4
SCHEMA = Schema((Feature("user", 30), Feature("item", 20)))


class Ratings:
    """Random ratings, some of them with weights."""

    def __init__(self, num_rows: int = 600, *, weights: bool = False) -> None:
        rng = np.random.default_rng(0)
        self.ids = torch.from_numpy(np.stack([rng.integers(0, 30, num_rows), rng.integers(0, 20, num_rows)], 1))
        self.labels = torch.from_numpy(rng.integers(0, 2, num_rows).astype(np.float32))
        self.weights = torch.from_numpy(rng.random(num_rows).astype(np.float32)) if weights else None

    def __len__(self) -> int:
        return len(self.ids)

    def fetch(self, rows: np.ndarray) -> Batch:
        weights = None if self.weights is None else self.weights[rows]
        return Batch(torch.zeros(len(rows), 0), self.ids[rows], self.labels[rows], weights=weights)


def finalized(tables: EmbeddingCollection, num_ids: int | None = None) -> EmbeddingCollection:
    """Tables with pointers, of random rows of the first ids; of all, unless told."""
    for table in tables.tables.values():
        if isinstance(table, CCEEmbedding):
            counts = torch.full((table.num_embeddings,), 2)
            counts[table.num_embeddings if num_ids is None else num_ids :] = 0
            table.give_rows(counts)
    finalize(tables, seed=0)
    return tables


def make_model(name: str = "gmf", *, method: str = "full") -> nn.Module:
    cce = {"num_columns": 2}
    size = {} if method == "full" else {"cap": 32, "options": {"cce": cce}}
    tables = finalized(EmbeddingCollection(SCHEMA.vocabulary_sizes, DIM, method=method, **size, seed=0))
    options = {} if name == "gmf" else {"top": [8], "generator": torch.Generator().manual_seed(1)}
    model = create_model(name, SCHEMA, tables, **options)
    with torch.no_grad():
        for parameter in tables.parameters():
            parameter.mul_(3)
    return model
