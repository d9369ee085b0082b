"""Store pointers instead of ids: `python examples/pointers_instead_of_ids.py`.

"The index pointers can replace the original IDs" (the CCE paper, "How to store the hash functions"). Once pointers are
final, stored rows may hold the rows of the codebook that an id uses. A model of such rows holds the codebook alone,
however many ids there are. It pays where the table of pointers does not fit; otherwise keep ids, which are narrower.
"""

import torch
from torch import Tensor, nn

import cce


class CodebookOnly(nn.Module):
    """Vectors of stored rows: what a table of ids computes, without its pointers."""

    def __init__(self, codebook: Tensor) -> None:
        super().__init__()
        self.codebook = nn.Parameter(codebook.detach().clone())

    def forward(self, rows: Tensor) -> Tensor:
        """Vectors `(n, columns · width)` of rows `(n, columns, terms)`."""
        return nn.functional.embedding(rows, self.codebook).sum(dim=2).flatten(1)


def main() -> None:
    table = cce.create_embedding("cce-paper", 100_000, 16, cap=4_000, seed=0)
    table.cluster(generator=torch.Generator().manual_seed(0))
    ids = torch.randint(0, 100_000, (4_096,), generator=torch.Generator().manual_seed(1))

    rows = table.layout().rows(ids).to(torch.int16)  # store these instead of ids
    model = CodebookOnly(table.codebook)
    same = torch.allclose(model(rows.long()), table(ids), atol=1e-6)
    print(f"the same vectors: {same}; {model.codebook.nbytes:,} bytes instead of {table.nbytes:,}")
    print(f"a row of data has {rows[0].nbytes} bytes instead of 4")


if __name__ == "__main__":
    main()
