"""What the ranks of a sharded table hold, as one state: to be saved in one file, or shared out among other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from cce.distributed import broadcast, current_ranks, exchange_rows, gather_rows
from cce.embeddings.cce import CCEEmbedding
from cce.indexing import OpenRowMap, PointerStore, RowMap

if TYPE_CHECKING:
    from cce.embeddings.int8_rows import Int8Rows

Share = dict[str, Tensor]  # of one rank


def sharded_tables(model: nn.Module) -> dict[str, CCEEmbedding]:
    """The sharded tables of a model, by each of their names."""
    modules = model.named_modules(remove_duplicate=False)
    return {name: each for name, each in modules if isinstance(each, CCEEmbedding) and each.is_sharded}


def model_state(model: nn.Module) -> dict[str, Any]:
    """The `state_dict` of a model as if no table were sharded, on rank 0. All ranks must call it."""
    state, whole = model.state_dict(), dict[int, dict[str, Tensor]]()
    for name, table in sharded_tables(model).items():
        if id(table) not in whole:
            shares = _to_first(share_of(table))
            whole[id(table)] = whole_state(table, shares, table.codebook) if shares else {}
        state |= {f"{name}.{key}".removeprefix("."): value for key, value in whole[id(table)].items()}
    return state


def unshard(model: nn.Module) -> None:
    """Give every rank the pointers of all ids of the tables that are final, which then are sharded no more.

    They take a few bytes an id. All ranks must call it.
    """
    for table in {table: None for table in sharded_tables(model).values() if table.is_final}:
        shares = _to_first(share_of(table))
        state = whole_state(table, shares, table.codebook) if shares else None
        whole = table.state_dict() | broadcast(state, current_ranks())
        table.shard, table.rows.shards = False, None
        table.rows.is_local = table.rows.map.is_local = table.pointers.is_local = False
        table.load_state_dict(whole)


def share_of(table: CCEEmbedding) -> Share:
    """What this rank has: ids, with their rows or pointers, counts of ids without, and numbers."""
    rows = table.rows
    rows.compact()
    values = table.pointers.store.to_tensor() if table.is_final else rows.records[1 : rows.num_rows]
    ids = torch.cat([rows.map.parts[0][:0], *rows.map.ids()])
    return {"ids": ids, "values": values, "seen": rows.seen, "numbers": rows.numbers}


def whole_state(table: CCEEmbedding, shares: Sequence[Share], codebook: Tensor) -> dict[str, Tensor]:
    """The index state of a table like this one that has the rows of all these shares; int8 ones without a codebook."""
    rows, merged = table.rows, _merged(table.rows, shares)
    ids, values = (torch.cat([share[name] for share in shares]) for name in ("ids", "values"))
    row_map = OpenRowMap() if rows.num_embeddings is None else RowMap(rows.num_embeddings)
    row_map.insert(ids)
    ordered = torch.empty_like(values)
    ordered[row_map(ids) - 1] = values
    state: dict[str, Tensor] = {f"map.{name}": tensor for name, tensor in row_map.state_dict().items()}
    none = torch.zeros(1, rows.width, dtype=torch.int8)
    state |= merged | {"records": none if len(codebook) else torch.cat([none, ordered])}
    state = {f"rows.{name}": tensor for name, tensor in state.items()}
    num_columns = table.embedding_dim // codebook.shape[1]
    store = PointerStore(len(ids) if len(codebook) else 0, num_columns, max(1, len(codebook) // num_columns))
    store.write(0, ordered[: store.num_ids, :num_columns].long())
    sizes = torch.tensor([store.num_ids, store.num_columns, store.num_rows])
    return state | {"pointers.words": store.words, "pointers.sizes": sizes}


def _merged(rows: Int8Rows, shares: Sequence[Share]) -> dict[str, Tensor]:
    """Counts and numbers of all shares together."""
    numbers = torch.stack([share["numbers"] for share in shares])
    merged = numbers[0].clone()
    merged[3:-3] = numbers[:, 3:-3].sum(0)
    merged[-2:] = numbers[:, -2:].view(torch.float64).sum(0).view(torch.int64)
    seen = shares[0]["seen"].clone()
    for share in shares[1:]:  # ranks count other ids: bits are joined; a sketch may count too much, but not too little
        seen = seen | share["seen"] if rows.num_embeddings is not None else seen.maximum(share["seen"])
    return {"seen": seen, "numbers": merged}


def _to_first(share: Share) -> list[Share]:
    """The shares of all ranks, on rank 0."""
    ranks = current_ranks()
    found: list[Share] = [{} for _ in range(ranks.world_size)]
    for name, tensor in share.items():
        counts = gather_rows(torch.tensor([len(tensor)]), ranks).tolist()
        others = [0] * (ranks.world_size - 1)
        theirs = counts if ranks.is_main else [0] * ranks.world_size
        received = exchange_rows(tensor.cpu(), [len(tensor), *others], theirs)
        for own, part in zip(found, torch.split(received, theirs), strict=True):
            own[name] = part
    return found if ranks.is_main else []
