"""Baked tables: pointers come with the data, and only the codebook is here.

"The index pointers can replace the original IDs" (the CCE paper, "How to store the hash functions"). Once pointers are
final, stored rows may hold them instead of ids; then no table of pointers has to be in memory, however many ids there
are. An input is a tuple of *words* (`cce.schema.Pointers`), whose bits name rows of the codebook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn

from cce.embeddings.base import Embedding
from cce.embeddings.initialization import StartScale, normal_table
from cce.embeddings.shapes import Shapes
from cce.indexing import PackedRows, Versioned
from cce.kernels import Layout, Lookup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce.schema import Pointers


class WordTable(Versioned):
    """The columns whose pointers are in one word: tables of `num_rows` rows each, one below the other."""

    check_ids: bool | None = None

    def __init__(self, codebook: nn.Parameter, num_columns: int, pointers: Pointers, *, sparse: bool) -> None:
        super().__init__()
        self.num_columns, self.num_terms, self.sparse = num_columns, pointers.num_terms, sparse
        self.rows = PackedRows(pointers.num_rows, num_columns * pointers.num_terms)
        self.num_words = 2 ** (pointers.bits * self.rows.num_tables)
        self.codebook = codebook

    def layout(self) -> Layout:
        """Some bits for each row that is added up."""
        num_rows, width = self.codebook.shape
        return Layout(self.num_words, self.num_columns, self.num_terms, width, num_rows, (self.rows,))


class BakedEmbedding(Embedding):
    """Vectors `(*s, embedding_dim)` of words `(*s, num_words)`, which hold the pointers of `num_embeddings` ids."""

    method = "baked"

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        pointers: Pointers,
        sparse: bool = False,
        start_scale: StartScale = "uniform",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, sparse=sparse, start_scale=start_scale)
        self.pointers = pointers
        shapes = self.shapes(num_embeddings, embedding_dim, {"pointers": pointers}).parameters.values()
        variance = self.start_variance / pointers.num_terms
        codebooks = [normal_table(*shape, variance=variance, generator=generator) for shape in shapes]
        columns = zip(codebooks, pointers.columns_of_words, strict=True)
        self.words = nn.ModuleList(WordTable(codebook, n, pointers, sparse=sparse) for codebook, n in columns)
        self.look_up = Lookup(self.word_tables())

    def word_tables(self) -> list[WordTable]:
        """The table of each word, as lookups take them."""
        return list(self.words)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        """Drop the lookup: a copy builds its own, with other addresses."""
        return {name: value for name, value in self.__dict__.items() if name != "look_up"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.look_up = Lookup(self.word_tables())

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of words `(*s, num_words)`."""
        num_words = len(self.words)
        if not isinstance(input, Tensor) or input.dim() == 0 or input.shape[-1] != num_words:
            got = tuple(input.shape) if isinstance(input, Tensor) else type(input).__name__
            raise ValueError(f"words of pointers must be a Tensor of shape (…, {num_words}), got {got}.")
        return self.embed(input.reshape(-1, num_words)).view(*input.shape[:-1], self.embedding_dim)

    def embed(self, ids: Tensor) -> Tensor:
        """Vectors `(n, embedding_dim)` of words `(n, num_words)`."""
        return self.look_up(ids)

    @torch.no_grad()
    def take_codebook(self, codebook: Tensor) -> None:
        """Take over the codebook of the table whose pointers these are."""
        words = self.word_tables()
        for word, part in zip(words, torch.split(codebook, [len(word.codebook) for word in words]), strict=True):
            word.codebook.copy_(part)

    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> NoReturn:
        """There are no ids here whose vectors could be fitted."""
        del weight, generator
        raise TypeError("a baked table has no ids: it starts from the run whose pointers it has, or from none.")

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """The rows that each word names."""
        del num_embeddings
        pointers: Pointers = arguments["pointers"]
        rows, width = pointers.num_terms * pointers.num_rows, embedding_dim // pointers.num_columns
        columns = enumerate(pointers.columns_of_words)
        return Shapes({f"words.{word}.codebook": (n * rows, width) for word, n in columns})

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> NoReturn:
        """Its sizes follow from its pointers."""
        del num_embeddings, embedding_dim, options
        raise TypeError(f"a baked table has the size of its pointers, and no budget, got num_params={num_params}.")
