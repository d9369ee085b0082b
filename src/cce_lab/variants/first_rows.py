"""More parameters before the first clustering than after it (appendix, "What didn't work")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.embeddings import CodebookShape, rules, whole
from cce_lab.variants.resized import ResizedEmbedding

if TYPE_CHECKING:
    from collections.abc import Mapping


class FirstRowsEmbedding(ResizedEmbedding):
    """CCE whose tables have `first_factor` times `num_rows` rows until the first clustering."""

    method = "cce-first-rows"
    option_checks = rules(**ResizedEmbedding.option_checks, first_factor=whole(1))

    def __init__(self, num_embeddings: int, embedding_dim: int, *, first_factor: int = 4, **options: Any) -> None:
        super().__init__(num_embeddings, embedding_dim, **options)
        self.later_rows = self.num_rows // first_factor

    @classmethod
    def shape_of(cls, embedding_dim: int, arguments: Mapping[str, Any]) -> CodebookShape:
        """The larger tables of the start."""
        shape = super().shape_of(embedding_dim, arguments)
        return shape._replace(num_rows=arguments["first_factor"] * shape.num_rows)

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The budget is for what is served: the tables after the first clustering."""
        return super().size_for_budget(num_embeddings, embedding_dim, num_params, dict(options) | {"first_factor": 1})

    @property
    def later_shape(self) -> CodebookShape:
        """Tables of `num_rows` rows."""
        return self.codebook_shape._replace(num_rows=self.later_rows)

    @property
    def next_shape(self) -> CodebookShape:
        """The same: the first clustering makes them so."""
        return self.later_shape
