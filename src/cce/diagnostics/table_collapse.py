"""Has a table collapsed? Its entropies beside what they could be and what they should be.

Too high an entropy says that nothing was learned: the pointers are as good as random. Too low a one says that columns
or rows have collapsed. What to expect is what product quantisation of the same vectors gives: the paper's "golden
midpoint" (appendix "Table Collapse").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cce.clustering.agreement import count_rows, pointer_entropies
from cce.clustering.quantize import ProductQuantizer, draw_sample, encode_all, vectors_of
from cce.diagnostics.entropy import pointer_table

if TYPE_CHECKING:
    from cce.embeddings.clustered import ClusteredEmbedding

COLLAPSED = 0.75  # of the golden midpoint: two columns that say the same have half
RANDOM = 0.98  # of the bound


@dataclass(frozen=True)
class Collapse:
    """Entropies H1 and H2 of a table, of product quantisation of its vectors, and their upper bounds, in nats."""

    entropies: tuple[float, ...]
    golden: tuple[float, ...]
    bounds: tuple[float, ...]
    dead_rows: int
    num_rows: int  # of all columns

    @property
    def verdict(self) -> str:
        """What this means, in words."""
        for order, (found, golden) in enumerate(zip(self.entropies, self.golden, strict=True), start=1):
            if found < COLLAPSED * golden:
                what = "a column uses few of its rows" if order == 1 else "two columns say nearly the same"
                return f"collapsed: {what} (H{order} is {found:.2f}, product quantisation gives {golden:.2f})"
        if all(found > RANDOM * bound for found, bound in zip(self.entropies, self.bounds, strict=True)):
            return "as spread as random pointers: little seems to have been learned yet"
        return "healthy: near what product quantisation of the same vectors gives"

    def __str__(self) -> str:
        lines = [
            f"H{order}: {found:.3f}  (product quantisation {golden:.3f}, at most {bound:.3f})"
            for order, (found, golden, bound) in enumerate(
                zip(self.entropies, self.golden, self.bounds, strict=True), start=1
            )
        ]
        return "\n".join([*lines, f"dead rows: {self.dead_rows} of {self.num_rows}", self.verdict])


@torch.no_grad()
def collapse(table: ClusteredEmbedding, *, generator: torch.Generator | None = None) -> Collapse:
    """Compare the pointers of a CCE table with those that product quantisation of its vectors would give now."""
    pointers = pointer_table(table)
    num_ids, num_columns = pointers.shape
    order = min(2, num_columns)
    return Collapse(
        entropies=pointer_entropies(pointers, order),
        golden=pointer_entropies(_quantized(table, num_ids, generator), order),
        bounds=tuple(min(j * math.log(table.num_rows), math.log(num_ids)) for j in range(1, order + 1)),
        dead_rows=count_rows(pointers, table.num_rows)[0],
        num_rows=table.num_rows * num_columns,
    )


def _quantized(table: ClusteredEmbedding, num_ids: int, generator: torch.Generator | None) -> torch.Tensor:
    quantizer = ProductQuantizer(table.num_columns, table.num_rows, table.settings)
    device = table.codebook.device

    def source(ids: torch.Tensor) -> torch.Tensor:
        return table.compose(ids.to(device))

    counts = None if table.counts is None else table.counts.counts
    ids, weights = draw_sample(num_ids, table.num_rows, table.settings, counts=counts, generator=generator)
    quantizer.fit(vectors_of(source, ids), weights, generator)
    return encode_all(quantizer, source, num_ids).long()
