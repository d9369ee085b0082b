"""Diagnosis of table collapse: the entropies of a table beside their bounds and their expected values.

Too low an entropy says that columns or rows have collapsed. What to expect is what product quantisation of the same
vectors gives: the paper's "golden midpoint" (appendix "Table Collapse"). A high one says that rows are used evenly, and
nothing about what was learned: that shows where pointers are compared with those that the table began with.

`H_j` is the smallest entropy, over all choices of j columns, of the distribution of their pointers over the vocabulary.
A low `H_1` means that a column uses few of its rows; a low `H_2` that two columns say the same. Random pointers come
near the upper bounds `j · log(num_rows)` and `log(num_embeddings)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cce.checks import check_range, check_type
from cce.clustering import (
    ProductQuantizer,
    ResidualQuantizer,
    Sample,
    column_entropies,
    count_rows,
    draw_sample,
    encode_all,
)
from cce.embeddings import CCEEmbedding, ClusteredEmbedding, Embedding, LinearEmbedding
from cce.indexing import Assignments, PointerStore, blocks, check_generator

COLLAPSED = 0.75  # of the golden midpoint: two columns that say the same have half
RANDOM = 0.99  # of what random pointers have: as even as that
FEW = 0.5  # of the rows of a column


@dataclass(frozen=True)
class Collapse:
    """Entropies H1 and H2, in nats: of a table, of product quantisation of its vectors, and of random pointers."""

    entropies: tuple[float, ...]
    golden: tuple[float, ...]
    random: tuple[float, ...]
    dead_rows: tuple[int, ...]  # of each column
    num_rows: int  # of each column
    moved: float  # share of pointers that are not the hashes that the table began with

    @property
    def verdict(self) -> str:
        """What this means, in words."""
        if not self.moved:
            return "never clustered: its pointers are the hashes that it began with"
        worst = max(self.dead_rows)
        if worst > FEW * self.num_rows:
            return f"collapsed: a column uses {self.num_rows - worst} of its {self.num_rows} rows"
        for order, (found, golden) in enumerate(zip(self.entropies, self.golden, strict=True), start=1):
            if found < COLLAPSED * golden:
                what = "a column uses few of its rows" if order == 1 else "two columns say nearly the same"
                return f"collapsed: {what} (H{order} is {found:.2f}, product quantisation gives {golden:.2f})"
        if all(found > RANDOM * bound for found, bound in zip(self.entropies, self.random, strict=True)):
            return "healthy: rows are used as evenly as by random pointers"
        return "healthy: near what product quantisation of the same vectors gives"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, with the dead rows of all columns together."""
        dead = {"dead_rows": sum(self.dead_rows), "num_rows": self.num_rows}
        return {
            "entropies": self.entropies, "golden": self.golden, **dead, "moved": self.moved, "verdict": self.verdict
        }  # fmt: skip

    def __str__(self) -> str:
        columns = zip(self.entropies, self.golden, self.random, strict=True)
        lines = [
            f"H{order}: {found:.3f}  (product quantisation {golden:.3f}, random pointers {random:.3f})"
            for order, (found, golden, random) in enumerate(columns, start=1)
        ]
        total = self.num_rows * len(self.dead_rows)
        lines += [f"dead rows: {sum(self.dead_rows)} of {total}", f"pointers that moved: {self.moved:.0%}"]
        return "\n".join([*lines, self.verdict])


@torch.no_grad()
def diagnose_collapse(table: ClusteredEmbedding, *, generator: torch.Generator | None = None) -> Collapse:
    """Compare the pointers of a CCE table with those that product quantisation of its vectors would give now."""
    if not isinstance(table, ClusteredEmbedding):
        raise TypeError(f"table must be a ClusteredEmbedding to be judged, got {type(table).__name__}.")
    check_generator(generator)
    pointers = pointer_table(table)
    num_ids, num_columns = pointers.shape
    order, hashes = min(2, num_columns), hashed_pointers(table.assignments, num_ids)
    return Collapse(
        entropies=column_entropies(pointers, order),
        golden=column_entropies(_quantized(table, num_ids, generator), order),
        random=column_entropies(hashes, order),
        dead_rows=tuple(count_rows([column], table.num_rows)[0] for column in torch.split(pointers, 1, dim=1)),
        num_rows=table.num_rows,
        moved=(pointers != hashes).float().mean().item(),
    )


def diagnose_tables(model: nn.Module, *, seed: int = 0) -> dict[str, Collapse]:
    """The diagnosis of every table of a model that has learned pointers and can learn them again, by its name."""
    return {
        name: diagnose_collapse(table, generator=torch.Generator().manual_seed(seed))
        for name, table in model.named_modules()
        if isinstance(table, ClusteredEmbedding) and table.can_cluster
    }


def _quantized(table: ClusteredEmbedding, num_ids: int, generator: torch.Generator | None) -> torch.Tensor:
    kind = ProductQuantizer if table.slots[0] == table.num_columns else ResidualQuantizer
    quantizer = kind(table.num_columns, table.num_rows, table.settings)
    device = table.codebook.device

    def source(ids: torch.Tensor) -> torch.Tensor:
        return table.embed(ids.to(device))

    counts = None if table.counts is None else table.counts.counts
    ids, weights = draw_sample(num_ids, table.num_rows, table.settings, counts=counts, generator=generator)
    quantizer.fit(Sample(source, ids, table.embedding_dim, weights), generator)
    return encode_all(quantizer, source, num_ids, table.embedding_dim).to_tensor()


MAX_COLUMNS_FOR_ALL = 6  # beyond, the number of choices of columns explodes


def pointer_entropies(table: Embedding, *, max_order: int | None = None) -> tuple[float, ...]:
    """`H_1, H_2, … H_c` in nats, of the learned pointers, or of the rows that H names where nothing is learned.

    `max_order` stops earlier; by default all are given up to six columns, and two beyond.
    """
    pointers = pointer_table(table)
    num_columns = pointers.shape[1]
    if max_order is None:
        max_order = num_columns if num_columns <= MAX_COLUMNS_FOR_ALL else 2
    check_range("max_order", max_order, 1, num_columns + 1)
    return column_entropies(pointers, max_order)


def hashed_pointers(assignments: Assignments, num_ids: int) -> Tensor:
    """The pointers `(num_ids, num_columns)` of the first ids before any clustering."""
    return _tabulate(assignments, num_ids, assignments.hash)


def _tabulate(assignments: Assignments, num_ids: int, rows_of: Callable[[Tensor], Tensor]) -> Tensor:
    pointers = PointerStore(num_ids, assignments.num_columns, assignments.num_rows)
    for ids in blocks(num_ids):
        pointers.write(int(ids[0]), rows_of(ids.to(assignments.hash.seeds.device)))
    return pointers.to_tensor()


@torch.no_grad()
def pointer_table(table: Embedding) -> Tensor:
    """Which row each id names in each column, on the CPU: the learned pointers, or the rows of H.

    Of a `CCEEmbedding`, which must be final, the pointers of the ids that have rows.
    """
    check_type("table", table, Embedding, "a table of cce")
    if isinstance(table, CCEEmbedding):
        table.sources()  # raises before it is final
        return table.pointers.store.to_tensor()
    learned = next((module for module in table.modules() if isinstance(module, Assignments)), None)
    if learned is not None and learned.num_learned:
        return learned.pointers.to_tensor()
    if learned is not None:
        return _tabulate(learned, table.num_embeddings, learned)  # hashed
    if not isinstance(table, LinearEmbedding):
        raise TypeError(f"table must look up rows to have entropies; method {table.method!r} does not.")
    device = table.codebook.device
    return torch.cat([table.lookup(ids.to(device))[0].flatten(1).cpu() for ids in blocks(table.num_embeddings)])
