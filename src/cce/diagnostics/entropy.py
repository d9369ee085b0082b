"""Entropies of pointers: the paper's measure of table collapse (appendix "Table Collapse").

`H_j` is the smallest entropy, over all choices of j columns, of the distribution of their pointers over the vocabulary.
A low `H_1` means that a column uses few of its rows; a low `H_2` that two columns say the same. Random pointers come
near the upper bounds `j · log(num_rows)` and `log(num_embeddings)`; learned ones should lie where product quantisation
of a trained table puts them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cce.checks import check_range, check_type
from cce.clustering import column_entropies
from cce.embeddings import CCEEmbedding, Embedding, LinearEmbedding
from cce.indexing import Assignments, PointerStore, blocks

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
