"""Checkpoints of a loop of one's own whose tables are sharded, through `torch.distributed.checkpoint`.

Each rank writes the rows that it has. Any number of ranks reads them again, as does one process without shards: rows go
to those who own them now. Nothing of ours is pickled, but torch's own index of the files is: load your own checkpoints.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import checkpoint as dcp
from torch.optim import Optimizer

from cce.checks import check_type
from cce.distributed import current_ranks, gather_rows, pack, unpack
from cce.embeddings import MOST_ROWS, CCEEmbedding, Route, Share, sharded_tables, share_of, whole_state
from cce.version import __version__

FORMAT, HEADER, SPREAD, METADATA = 1, "header", "spread/", ".metadata"
INDEX = ("rows.", "pointers.")  # of a table: what is shared out


def save_checkpoint(folder: Path | str, model: nn.Module, optimizer: Optimizer | None = None, **state: Any) -> None:
    """Save a model, its optimizer and plain values or tensors of `state` to a folder that all ranks see.

    All ranks must call it. The folder has no `.metadata` until everything is written: what it held before is gone.
    Tensors that TorchRec shares out are saved with the model; their optimizer is TorchRec's affair.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    ranks, tables, tensors = current_ranks(), sharded_tables(model), dict[str, Tensor]()
    inside = tuple(f"{name}.{each}".removeprefix(".") for name in tables for each in INDEX)
    own = {name: value for name, value in model.state_dict().items() if not name.startswith(inside or ("\0",))}
    spread = {name: own.pop(name) for name, value in [*own.items()] if _is_spread(value)}
    content = {
        "model": own,
        "optimizer": None if optimizer is None else optimizer.state_dict(),
        "state": state,
    }
    plain = pack(content, tensors)
    header = {"format": FORMAT, "cce": __version__, "world_size": ranks.world_size, "tables": list(tables)}
    header |= {"plain": plain, "tensors": list(tensors), "spread": list(spread)}
    tensors[HEADER] = torch.frombuffer(bytearray(json.dumps(header).encode()), dtype=torch.uint8)
    written = (tensors if ranks.is_main else {}) | {SPREAD + name: value for name, value in spread.items()}
    for name, table in tables.items():
        written |= {_key(name, ranks.rank, part): tensor for part, tensor in share_of(table).items()}
    if ranks.is_main:  # nobody writes before rank 0 has a plan
        (Path(folder) / METADATA).unlink(missing_ok=True)
    with _quiet():
        dcp.save(written, checkpoint_id=folder)


def load_checkpoint(folder: Path | str, model: nn.Module, optimizer: Optimizer | None = None) -> dict[str, Any]:
    """Load what `save_checkpoint` wrote, by any number of ranks, into the same model; its `state`.

    All ranks must call it. Make the optimizer before it.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    if not (Path(folder) / METADATA).is_file():
        raise FileNotFoundError(f"{folder} must be a whole checkpoint that cce.save_checkpoint wrote, and is not.")
    saved = _Saved(Path(folder))
    content = unpack(saved.header["plain"], saved.read(saved.header["tensors"]))
    state, modules = dict(content["model"]), dict(model.named_modules(remove_duplicate=False))
    for name in saved.header["tables"]:
        table = modules.get(name)
        if not isinstance(table, CCEEmbedding):
            raise ValueError(f"model must have a table {name!r} of method 'cce', as in {folder}; it has none.")
        codebook = state[f"{name}.codebook".removeprefix(".")]
        index = whole_state(table, _shares(saved, name, table), codebook)
        state |= {f"{name}.{key}".removeprefix("."): value for key, value in index.items()}
    if saved.header["spread"]:
        here = model.state_dict()
        state |= saved.fill({name: here[name] for name in saved.header["spread"]})
    model.load_state_dict(state)
    for table in sharded_tables(model).values() if current_ranks().rank else ():
        table.rows.forget_counters()  # rank 0 has those of all
    if optimizer is not None:
        optimizer.load_state_dict(content["optimizer"])
    found: dict[str, Any] = content["state"]
    return found


class _Saved:
    """The tensors of a folder, read when they are asked for, by each rank for itself."""

    def __init__(self, folder: Path) -> None:
        self.reader = dcp.FileSystemReader(folder)
        self.tensors: dict[str, Any] = self.reader.read_metadata().state_dict_metadata
        self.header = json.loads(bytes(self.read([HEADER])[HEADER].tolist()))

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        kinds = {name: self.tensors[name] for name in names}
        found = {name: torch.empty(kind.size, dtype=kind.properties.dtype) for name, kind in kinds.items()}
        with _quiet():
            dcp.load(found, storage_reader=self.reader, no_dist=True)
        return found

    def fill(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Read what others share out into tensors that are here, each rank what it has of them."""
        dcp.load({SPREAD + name: tensor for name, tensor in tensors.items()}, storage_reader=self.reader, no_dist=True)
        return tensors


def _is_spread(value: Any) -> bool:
    """Whether it is a tensor that others share out over ranks, such as TorchRec."""
    return isinstance(value, Tensor) and type(value) not in (Tensor, nn.Parameter)


def _shares(saved: _Saved, name: str, table: CCEEmbedding) -> list[Share]:
    """What was saved of a table: ids and values that are to be here, and counts and numbers of all."""
    ranks, world_size, shards = current_ranks(), saved.header["world_size"], table.rows.shards
    read = saved.read(_key(name, rank, part) for rank in range(world_size) for part in ("seen", "numbers"))
    mine = range(world_size)[ranks.rank :: ranks.world_size]
    parts = [[saved.read([_key(name, rank, part)]).popitem()[1] for rank in mine] for part in ("ids", "values")]
    kinds = [saved.tensors[_key(name, 0, part)] for part in ("ids", "values")]
    empty = [torch.empty(0, *kind.size[1:], dtype=kind.properties.dtype) for kind in kinds]
    ids, values = (torch.cat([none, *part]) for none, part in zip(empty, parts, strict=True))
    if shards is not None:
        route = Route(shards, [ids])
        ids, values = (torch.cat(route.send([each])) for each in (ids, values))
        _check_space(name, len(ids))
    elif ranks.world_size > 1:
        ids, values = (gather_rows(each, ranks) for each in (ids, values))
    shares = [{part: read[_key(name, rank, part)] for part in ("seen", "numbers")} for rank in range(world_size)]
    for share, (ids_of, values_of) in zip(shares, [(ids, values), *[empty] * (world_size - 1)], strict=True):
        share |= {"ids": ids_of, "values": values_of}
    return shares


def _check_space(name: str, num_ids: int) -> None:
    """Raise on all ranks if one of them would have more rows than it can number."""
    counts = gather_rows(torch.tensor([num_ids]), current_ranks())
    if int(counts.max()) > MOST_ROWS:
        got = f"{len(counts)} ranks, of which one would have {int(counts.max()):,}"
        raise ValueError(
            f"the process group must give each rank at most {MOST_ROWS:,} rows of table {name!r}, got {got}."
        )


def _key(name: str, rank: int, part: str) -> str:
    return f"shards/{name}/{rank}/{part}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Say nothing of a process that is alone, and of files that are written again."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled|Detected an existing checkpoint")
        yield
