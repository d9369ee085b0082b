"""Rows of ids sharded over the ranks of a process group: whose an id is, and how others ask for what they need.

A hash of the id says which rank has its row, so that nobody keeps a list. Whoever looks ids up sends each distinct one
to its owner and gets bytes back: int8 values, or pointers. What several tables ask for travels together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from cce.distributed import Ranks, check_same, current_ranks, exchange_rows
from cce.embeddings.row_gradients import first_occurrences
from cce.indexing import check_ids, hash32_parts, make_key
from cce.version import __version__

if TYPE_CHECKING:
    from cce.embeddings.int8_rows import Int8Rows

OWNER_KEY = make_key(0, 5)  # of the same hash always: a checkpoint may come from another number of ranks
FAILED = -1  # instead of a count: this rank has no request, but an error
ADVICE = "Rows are sharded over all ranks, which must make the same tables with the same version of cce."


@dataclass(frozen=True)
class Shards:
    """The share of this rank."""

    rank: int
    world_size: int

    @classmethod
    def of_group(cls) -> Self | None:
        """That of the default process group; None for a process alone."""
        ranks = current_ranks()
        return cls(ranks.rank, ranks.world_size) if ranks.world_size > 1 else None

    @property
    def ranks(self) -> Ranks:
        """All ranks, of which this is one."""
        return Ranks(self.rank, self.world_size)

    def owners(self, ids: Tensor) -> Tensor:
        """The rank that has the row of each id."""
        return (hash32_parts(OWNER_KEY, ids)[1] * self.world_size) >> 32

    def is_mine(self, ids: Tensor) -> Tensor:
        """Whether this rank has the row of each id."""
        return self.owners(ids) == self.rank


class Route:
    """The way of the ids of some tables to their owners, and back: one after the other by rank, and by table.

    error: why this rank cannot ask. All ranks then raise, and none waits.
    """

    def __init__(self, shards: Shards, ids: Sequence[Tensor], error: Exception | None = None) -> None:
        self.num_tables, self.lengths = len(ids), [len(each) for each in ids]
        shape = shards.world_size, self.num_tables
        targets = torch.cat([shards.owners(each) * self.num_tables + index for index, each in enumerate(ids)])
        self.order = targets.argsort(stable=True)
        counts = targets.bincount(minlength=shape[0] * shape[1]).view(shape).cpu()
        counts = counts if error is None else torch.full_like(counts, FAILED)
        self.theirs = exchange_rows(counts, *[[1] * shards.world_size] * 2)
        failed = (self.theirs < 0).any(1).nonzero().flatten().tolist()
        if error is not None:
            raise error
        if failed:
            raise RuntimeError(f"no rank goes on, as rank {failed[0]} has an error with its ids, and says which.")
        self.counts, self.their_counts = counts.sum(1).tolist(), self.theirs.sum(1).tolist()

    def send(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Values of ids, by table, to the owners of the ids; what was sent here, by rank and table."""
        sent = torch.cat(list(values))[self.order]
        return list(torch.split(exchange_rows(sent, self.counts, self.their_counts), self.theirs.flatten().tolist()))

    def answer(self, found: Sequence[Tensor]) -> list[Tensor]:
        """What was asked for, by rank and table, to those who asked; their answers, by table."""
        received = exchange_rows(torch.cat(list(found)), self.their_counts, self.counts)
        answers = torch.empty_like(received)
        answers[self.order] = received
        return list(torch.split(answers, self.lengths))

    def ask(self, ids: Sequence[Tensor], find: Callable[[int, Tensor], Tensor], width: int) -> list[Tensor]:
        """Bytes `(n, width)` for the ids of each table; `find` has those of its own ids, perhaps fewer of each."""
        asked = self.send(ids)
        found: list[Tensor] = [torch.empty(0)] * len(asked)
        for table in range(self.num_tables):
            own = asked[table :: self.num_tables]
            known = find(table, torch.cat(own))
            wide = torch.nn.functional.pad(known, (0, width - known.shape[1]))
            found[table :: self.num_tables] = torch.split(wide.to(ids[0].device), [len(each) for each in own])
        return self.answer(found)


def ask_owners(
    tables: Sequence[Int8Rows],
    columns: Sequence[Tensor],
    names: Sequence[str],
    find: Callable[[int, Tensor], Tensor],
    width: int,
) -> list[Tensor]:
    """Bytes `(n, width)` for the ids `(n)` of each table, whose owners `find` them; what is wrong with ids is said."""
    check_shards(dict(zip(names, tables, strict=True)))
    shards = tables[0].shards
    assert shards is not None
    error, distinct = None, [(ids[:0], ids[:0]) for ids in columns]
    try:
        for table, ids, name in zip(tables, columns, names, strict=True):
            check_ids(ids, table.num_embeddings, what=f"ids of {name}")
        distinct = [first_occurrences(ids) for ids in columns]
    except (IndexError, TypeError) as wrong:
        error = wrong
    asked = [ids for ids, _ in distinct]
    answers = Route(shards, asked, error).ask(asked, find, width)
    return [answer.index_select(0, inverse) for answer, (_, inverse) in zip(answers, distinct, strict=True)]


def check_shards(tables: Mapping[str, Int8Rows]) -> None:
    """Raise on all ranks if they do not have the same sharded tables, with the same seeds and options."""
    sharded = {name: rows for name, rows in tables.items() if rows.shards is not None and not rows.live.is_agreed}
    found: dict[str, Any] = {"the version of cce": __version__, "the list of sharded tables": list(tables)}
    for name, rows in sharded.items():
        options = [rows.num_embeddings, rows.dim, rows.bound, rows.can_loop, asdict(rows.policy)]
        found |= {f"the seed of {name}": rows.key, f"the arguments of {name}": options}
    if not sharded:
        return
    plain = {name: bytearray(json.dumps(value).encode()) for name, value in found.items()}
    check_same({name: torch.frombuffer(each, dtype=torch.uint8) for name, each in plain.items()}, advice=ADVICE)
    for rows in sharded.values():
        rows.live.is_agreed = True
