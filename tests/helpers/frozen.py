"""One small table of every method, in all its forms, and models of two features around them."""

from typing import Any

import torch

import cce
from cce.schema import Batch, Feature, Schema
from cce_lab.variants import VARIANTS
from helpers.final_form import finalize_table

NUM_IDS, DIM = 600, 16
FORMS: dict[str, list[dict[str, Any]]] = {
    "full": [{}, {"padding_idx": 2}],
    "hash": [{}, {"signed": True}],
    "hash-embedding": [{}, {"num_hashes": 3}, {"weighted": True, "num_weights": NUM_IDS}, {"weighted": True}],
    "ce-concat": [{}, {"split": "quotient-remainder"}],
    "ce-sum": [{}, {"split": "quotient-remainder", "num_tables": 3}],
    "ce-mult": [{}, {"split": "quotient-remainder"}],
    "robe": [{}, {"block_size": 5}],
    "dhe": [{}, {"num_hidden": 0, "num_hashes": 12}],
    "tt": [{}],
    "collide": [{}],
    "low-rank": [{}],
    "mixed-dim": [{}],
    "pq": [{}, {"residual": True}],
    "quantized": [{}, {"scale_by": "column"}, {"bits": 4}, {"padding_idx": 2}],
    "cce-paper": [{}, {"padding_idx": 3, "num_columns": 1}],
    "cce": [{}, {"padding_idx": 3}, {"unseen": "trained"}, {"int8": True}, {"int8": True, "unseen": "trained"}],
    **{kind.method: [{}] for kind in VARIANTS},
}
BUDGETS = {"full": NUM_IDS * DIM, "quantized": NUM_IDS * DIM}  # the others get less than the full table
CASES = [(method, options) for method, forms in FORMS.items() for options in forms]
LINEAR = [case for case in CASES if case[0] not in ("dhe", "tt", "collide", "mixed-dim", "low-rank")]


def make_table(method: str, options: dict[str, Any], num_params: int = 3_000) -> cce.embeddings.Embedding:
    """A table of a method; `int8` keeps a table of `cce` as int8 rows, which two in three ids have."""
    if method == "cce":
        return make_cce_table(**options)
    kind = {kind.method: kind for kind in VARIANTS}.get(method, method)
    return cce.create_embedding(kind, NUM_IDS, DIM, num_params=BUDGETS.get(method, num_params), seed=1, **options)


def make_cce_table(*, int8: bool = False, **options: Any) -> cce.embeddings.Embedding:
    counts, draw = torch.arange(NUM_IDS) % 3 + 1, torch.Generator().manual_seed(1)
    table = cce.embeddings.CCEEmbedding(NUM_IDS, DIM, num_rows=16, counts=counts, generator=draw, **options)
    optimizer = cce.optim.Adam(table, lr=0.01)
    (table(torch.arange(NUM_IDS)) - 1).square().sum().backward()
    optimizer.step()
    if not int8:
        finalize_table(table, generator=draw)
    return table


def finalized(tables: cce.EmbeddingCollection) -> cce.EmbeddingCollection:
    """The tables, those of `cce` with pointers for two in three ids: without rows, all vectors would be zero."""
    for table in tables.tables.values():
        if isinstance(table, cce.embeddings.CCEEmbedding):
            table.give_rows(torch.arange(table.num_embeddings) % 3 + 1)
            finalize_table(table, generator=torch.Generator().manual_seed(1))
    return tables


def make_schema(*, multi_hot: bool) -> Schema:
    return Schema((Feature("user", NUM_IDS), Feature("item", 300, multi_hot=multi_hot)), ("age", "price"))


def make_model(schema: Schema, *, method: str = "cce-paper", pooling: str = "sum", **options: Any) -> torch.nn.Module:
    torch.manual_seed(0)  # a DLRM without a generator
    if method in {kind.method for kind in VARIANTS}:
        cce.plugins.load_plugins(["cce_lab.methods"])
    tables = cce.EmbeddingCollection(
        schema.vocabulary_sizes, DIM, method=method, cap=3_000, options={method: options}, pooling=pooling, seed=0
    )
    return cce.models.DLRM(schema, finalized(tables), bottom=(8,), top=(8,)).eval()


def make_batch(schema: Schema, num_rows: int, seed: int = 0) -> Batch:
    """Random rows; features of bags have 0 to 3 ids each."""
    draw = torch.Generator().manual_seed(seed)
    dense, labels = torch.randn(num_rows, 2, generator=draw), torch.zeros(num_rows)
    lengths = [
        torch.randint(0, 4, (num_rows,), generator=draw) if feature.multi_hot else torch.ones(num_rows).long()
        for feature in schema.features
    ]
    ids = [
        torch.randint(0, feature.num_embeddings, (int(each.sum()),), generator=draw)
        for feature, each in zip(schema.features, lengths, strict=True)
    ]
    if not schema.is_multi_hot:
        return Batch(dense, torch.stack(ids, dim=1), labels)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(lengths).cumsum(0)])
    return Batch(dense, torch.cat(ids), labels, offsets)
