"""Lookups of sharded tables: distinct ids go to their owners, int8 values or pointers come back and are decoded here.

One request serves all tables of a call. Gradients of int8 rows wait here for the optimizer's step, which sends them to
the owners of the rows; codebooks are the same on all ranks, and their gradients are torch's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from cce.embeddings.row_gradients import NEVER, Pending, merge_pending, sum_gradients, waits
from cce.embeddings.row_lookup import RowTables
from cce.embeddings.shards import ask_owners
from cce.indexing import NO_ID
from cce.kernels import Bags

if TYPE_CHECKING:
    from cce.embeddings.cce import CCEEmbedding
    from cce.embeddings.int8_rows import Int8Rows

MOST_WAITED = 255  # a byte


class ShardedTables(RowTables):
    """Tables of int8 rows of one dimension, each with a share of the rows, that are looked up together."""

    def in_loops(self, ids: Tensor) -> bool:
        """Compiled loops know the rows of this rank alone."""
        del ids
        return False

    def can_pool(self, ids: Tensor, weights: Tensor | None, dtype: torch.dtype) -> bool:
        """Whether bags of these ids are looked up here; if not, pool vectors of single ids."""
        return dtype is torch.float32 and (weights is None or not weights.requires_grad)

    def new_saved(self, ids: Tensor, bags: Bags | None, *, always: bool = True) -> Any:
        """What a lookup saves: how long the ids of each table still wait for a row, and bags."""
        del ids, always
        return {"bags": bags, "waiting": []}

    def read(self, ids: Tensor, *, bags: Bags | None = None, saved: Any = None) -> Tensor:
        """Vectors `(batch, tables, dim)` in float32. All ranks must call it."""
        columns = self._columns(ids, bags)
        found = ask_owners(self.tables, columns, self._named(), self._rows_of, self.dim + 1)
        vectors = []
        for table, column, bytes_of, padding in zip(self.tables, columns, found, self.paddings.tolist(), strict=True):
            codes = bytes_of[:, : self.dim].view(torch.int8)
            vectors.append((codes.float() * table.scale).masked_fill((column == padding).unsqueeze(-1), 0))
            if saved is not None:
                waiting = bytes_of[:, self.dim].long()
                saved["waiting"].append(waiting.masked_fill(waiting == MOST_WAITED, NEVER))
        if bags is None:
            return torch.stack(vectors, dim=1)
        flat = _weighted(torch.cat(vectors), bags)
        pooled = flat.new_zeros(bags.batch * len(columns), self.dim).index_add_(0, self._bag_of(bags), flat)
        return pooled.view(len(columns), bags.batch, self.dim).transpose(0, 1)

    def take(self, grad: Tensor, ids: Tensor, saved: Any, anchors: Sequence[Tensor]) -> list[Tensor]:
        """Sum the gradients of a lookup for each id and keep them; what the anchors' grow by."""
        if saved is None:  # a graph has looked up
            self.read(ids, saved=(saved := self.new_saved(ids, None)))
        bags, grads = saved["bags"], grad.detach().float().unbind(1)
        columns = self._columns(ids, bags)
        if bags is not None:
            flat = _weighted(torch.cat(grads).index_select(0, self._bag_of(bags)), bags)
            grads = torch.split(flat, [len(column) for column in columns])
        parts = zip(self.tables, columns, grads, self.paddings.tolist(), saved["waiting"], strict=True)
        return self.keep([sum_gradients(*part) for part in parts], anchors)

    def merge(self, table: Int8Rows, parts: Sequence[Pending]) -> Pending:
        """The gradients of several backward passes together."""
        return merge_pending(table, parts, has_waits=True)

    def _rows_of(self, index: int, ids: Tensor) -> Tensor:
        """What others are told of ids of this rank: values of their rows, and how long they wait for one."""
        table = self.tables[index]
        rows = table.find(ids.to(table.records.device))
        waiting = waits(table, ids.to(rows.device), rows).clamp(max=MOST_WAITED).to(torch.uint8)
        return torch.cat([table.codes[rows].view(torch.uint8), waiting.unsqueeze(1)], dim=1)

    def _named(self) -> list[str]:
        return self.names or [table.name for table in self.tables]

    def _columns(self, ids: Tensor, bags: Bags | None) -> list[Tensor]:
        """The ids of each table, without those after the last bag."""
        if bags is None:
            return [column.long() for column in ids.unbind(1)]
        sizes = bags.offsets[:: bags.batch].diff().tolist() if bags.batch else [0] * len(self.tables)
        return list(torch.split(ids[: sum(sizes)].long(), sizes))

    def _bag_of(self, bags: Bags) -> Tensor:
        sizes = bags.offsets.diff()
        return torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)


def _weighted(vectors: Tensor, bags: Bags) -> Tensor:
    return vectors if bags.weights is None else vectors * bags.weights[: len(vectors)].unsqueeze(-1)


def look_up_pointers(tables: Sequence[CCEEmbedding], columns: Sequence[Tensor], names: Sequence[str]) -> list[Tensor]:
    """Vectors `(n, dim)` of the ids of each table, whose compact form is sharded. All ranks must call it."""

    def pointers_of(index: int, ids: Tensor) -> Tensor:
        table = tables[index]
        rows = table.row_map(ids.to(table.row_map.device)).to(ids.device)
        found = torch.zeros(len(ids), table.num_columns, dtype=torch.int64, device=ids.device)
        has_row = rows > 0
        found[has_row] = table.pointers.store.read(rows[has_row] - 1)
        return torch.cat([found, has_row.unsqueeze(1)], dim=1).to(types[index]).view(torch.uint8)

    types = [torch.uint8 if table.num_rows <= 256 else torch.uint16 for table in tables]
    widths = [(table.num_columns + 1) * dtype.itemsize for table, dtype in zip(tables, types, strict=True)]
    answers = ask_owners([table.rows for table in tables], columns, names, pointers_of, max(widths))
    vectors = []
    for table, ids, found, dtype, width in zip(tables, columns, answers, types, widths, strict=True):
        answer = found[:, :width].contiguous().view(dtype).long()
        at = answer[:, : table.num_columns] + torch.arange(table.num_columns, device=ids.device) * table.num_rows
        pieces = functional.embedding(at, table.codebook, sparse=table.sparse).flatten(1)
        padding = NO_ID if table.padding_idx is None else table.padding_idx
        vectors.append(pieces.masked_fill(((answer[:, table.num_columns] == 0) | (ids == padding)).unsqueeze(1), 0))
    return vectors
