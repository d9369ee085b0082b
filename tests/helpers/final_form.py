"""One table of int8 rows in its compact form, of a size that is given: `cce.finalize` does it for models."""

import torch

from cce.embeddings import piece_shape


@torch.no_grad()
def finalize_table(table, *, num_columns=None, num_rows=None, counts=None, generator=None):
    """Finalize a table, by default with its own columns and rows; the weighted mean squared error of a value."""
    if table.is_final:
        return 0.0
    columns, _ = piece_shape(table.embedding_dim, num_columns or table.num_columns)
    rows = table.trained_rows(counts)
    compact = table.encode(rows, rows.fit(columns, num_rows or table.num_rows, generator))
    table.become(compact)
    return compact.distortion
