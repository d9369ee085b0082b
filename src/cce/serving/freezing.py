"""`freeze`: the same model for inference, with nothing that only training needs; and bundles, files of such models.

Tables become `FrozenTable`s: no gradients, no counts, packed pointers, codebooks in float32, helper tables left out
where they are zero. All else in the model is copied as it is.

A bundle is one safetensors file that `numpy_reader` maps, whose metadata describe the tables as JSON
(`docs/format.md`). Safetensors writes the widest types first, so that each tensor lies at a multiple of its own size.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from cce.checks import check_type
from cce.collection import EmbeddingCollection, feature_name
from cce.embeddings import CCEEmbedding, ClusteredEmbedding, Embedding, LinearEmbedding, QuantizedEmbedding
from cce.files import usual_permissions
from cce.indexing import Assignments, LearnedRows, OwnRow, RowMap, RowSource
from cce.kernels import Layout
from cce.serving.collection import FrozenCollection
from cce.serving.frozen_tables import FrozenCopy, FrozenRows, FrozenTable, StoredRows
from cce.serving.numpy_deltas import checksum
from cce.serving.numpy_reader import Array, Version

BUNDLE, VERSION = "cce-bundle", "1"


def freeze(model: nn.Module) -> nn.Module:
    """A copy of `model` for inference, on the CPU and in evaluation mode: vectors are float32.

    Rows that were trained as integers stay integers. Tables that are not sums of rows (`dhe`, `tt`, `low-rank`, …) are
    copied as they are.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    frozen = {id(table): freeze_table(table) for table in model.modules() if isinstance(table, Embedding)}
    if not frozen:
        raise ValueError(f"model must have tables of cce to freeze, got {type(model).__name__} without any.")
    memo: dict[int, nn.Module] = dict(frozen)
    for module in model.modules():
        if isinstance(module, EmbeddingCollection):
            memo[id(module)] = FrozenCollection(
                module.features,
                {name: frozen[id(table)] for name, table in module.tables.items()},
                pooling=module.pooling,
                unified=module.unified,
                padding_idx=module.padding_idx,
            )
    copied: nn.Module = memo.get(id(model)) or copy.deepcopy(model, memo)
    return copied.requires_grad_(requires_grad=False).eval().cpu()


def freeze_table(table: Embedding) -> FrozenTable:
    """One table for inference; see `freeze`."""
    if isinstance(table, CCEEmbedding):
        return _freeze_cce(table)
    if isinstance(table, ClusteredEmbedding) and table.num_helpers and not bool(table.tables[:, 1:].any()):
        return _without_helpers(table)
    if isinstance(table, LinearEmbedding) and not table.is_weighted:
        columns, terms, sources = table.sources()
        return _rows(table, table.codebook, sources, columns=columns, terms=terms)
    if isinstance(table, QuantizedEmbedding) and table.codes.values.dtype is torch.int8:
        return _int8_rows(table, table.codes.values, table.scale)
    return FrozenCopy(table)


def _freeze_cce(table: CCEEmbedding) -> FrozenTable:
    """Pointers and codebooks, or int8 rows as they are, behind the map of rows."""
    table.rows.compact()
    table.check_whole()
    row_map = copy.deepcopy(table.row_map)
    if table.is_final:
        store = table.pointers.store
        first_rows = range(0, len(table.codebook), store.num_rows)
        learned = LearnedRows(Assignments.of(store), range(store.num_columns), first_rows)
        return _rows(table, table.codebook, [learned], columns=store.num_columns, terms=1, row_map=row_map)
    rows, scale = table.rows, torch.tensor([[table.rows.scale]])
    if rows.trains_unseen:  # row 0 is what all other ids read
        return _int8_rows(table, rows.codes[row_map(torch.arange(table.num_embeddings))], scale)
    return _int8_rows(table, rows.codes[min(1, rows.num_rows - 1) : rows.num_rows], scale, row_map=row_map)


def _int8_rows(table: Embedding, values: Tensor, scale: Tensor, *, row_map: RowMap | None = None) -> FrozenTable:
    """Rows that were trained as integers, times one scale or one for each column."""
    num_rows, dim = values.shape
    stored = StoredRows(values.detach().cpu().clone(), scale.detach().float().cpu().expand(1, dim).clone())
    sources = [OwnRow(num_rows)]
    return FrozenRows(stored, Layout(table.num_embeddings, 1, 1, dim, num_rows, sources, table.padding_idx, row_map))


def _without_helpers(table: ClusteredEmbedding) -> FrozenTable:
    """The clustered tables alone."""
    rows, columns = table.tables[:, 0].reshape(-1, table.width), table.num_columns
    learned = LearnedRows(table.assignments, range(columns), range(0, len(rows), table.num_rows))
    num_pieces, _ = table.slots
    return _rows(table, rows, [learned], columns=num_pieces, terms=columns // num_pieces)


def _rows(
    table: Embedding,
    codebook: Tensor,
    sources: Sequence[RowSource],
    *,
    columns: int,
    terms: int,
    row_map: RowMap | None = None,
) -> FrozenRows:
    own = [copy_source(source) for source in sources if len(source.slots)]
    num_rows, width = codebook.shape
    layout = Layout(table.num_embeddings, columns, terms, width, num_rows, own, table.padding_idx, row_map)
    return FrozenRows(StoredRows(codebook.detach().cpu().to(torch.float32, copy=True).contiguous()), layout)


def copy_source(source: RowSource) -> RowSource:
    """The same rows, whatever becomes of the trained table.

    Pointers are not copied: a vocabulary may be large, and a table that is clustered again gets a new store of them.
    """
    shared = [source.assignments.pointers] if isinstance(source, LearnedRows) else []
    return copy.deepcopy(source, {id(store): store for store in shared})


# -- bundles -----------------------------------------------------------------------------------------------------------


def write_bundle(path: Path, model: nn.Module, version: Version | None = None) -> None:
    """Write a frozen model; a table that is not made of rows is written in full.

    version: after deltas; without it, this is an export of its own.
    """
    tensors, spec = bundle_of(model)
    if not json.loads(spec)["tables"]:
        raise TypeError(f"model must be a frozen model, got {type(model).__name__} without frozen tables: freeze it.")
    version = version or version_of(tensors, spec)
    metadata = {"format": BUNDLE, "version": VERSION, "spec": spec, **version.to_dict()}
    try:
        with usual_permissions(path):
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}.") from error


def bundle_of(model: nn.Module) -> tuple[dict[str, Tensor], str]:
    """The tensors of a bundle, and the description of its tables."""
    tables = frozen_tables(model)
    tensors = {f"{name}/{own}": each for name, table in tables.items() for own, each in table.tensors().items()}
    inside = tuple(f"{name}." for name in tables)
    weights = {} if "table" in tables else model.state_dict()
    others = {f"model/{name}": each.clone() for name, each in weights.items() if not name.startswith(inside)}
    spec = {"tables": {name: table.spec() for name, table in tables.items()}, "collections": _collections(model)}
    return tensors | others, json.dumps(spec)


def version_of(tensors: Mapping[str, Tensor], spec: str) -> Version:
    """That of an export of its own, by all that it holds."""
    return Version(checksum({name: as_array(each) for name, each in tensors.items()}, {"spec": spec}))


def as_array(tensor: Tensor) -> Array:
    """The same values as `numpy_reader` has them."""
    here = tensor.detach().cpu().contiguous()  # safetensors writes the memory of an array as it lies
    return here.view(torch.uint16).numpy() if here.dtype is torch.bfloat16 else here.numpy()


def frozen_tables(model: nn.Module) -> dict[str, FrozenTable]:
    """The tables of a frozen model by the path of their module."""
    return {name or "table": module for name, module in model.named_modules() if isinstance(module, FrozenTable)}


def _collections(model: nn.Module) -> dict[str, Any]:
    """Which feature of which collection has which table."""
    collections = {}
    for path, module in model.named_modules():
        if isinstance(module, FrozenCollection):
            prefix = f"{path}." if path else ""
            collections[path or "collection"] = {
                "features": module.features,
                "tables": {feature_name(key): f"{prefix}tables.{key}" for key in module.tables._modules},
                "pooling": module.pooling,
                "unified": module.unified,
                "padding_idx": module.padding_idx,
            }
    return collections
