"""Several helper tables in each column, or none (appendix, "What didn't work")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.embeddings import ClusteredEmbedding, CodebookShape, rules, whole

if TYPE_CHECKING:
    from collections.abc import Mapping


class HelpersEmbedding(ClusteredEmbedding):
    """CCE with `num_helpers` helper tables in each column; the paper has 1, and saw no effect of more."""

    method = "cce-helpers"
    option_checks = rules(**ClusteredEmbedding.option_checks, num_helpers=whole(0))

    def __init__(self, num_embeddings: int, embedding_dim: int, *, num_helpers: int = 2, **options: Any) -> None:
        del num_helpers  # `shape_of` has it
        super().__init__(num_embeddings, embedding_dim, **options)

    @classmethod
    def shape_of(cls, embedding_dim: int, arguments: Mapping[str, Any]) -> CodebookShape:
        """So many tables in each column, and the clustered one."""
        shape = super().shape_of(embedding_dim, arguments)
        return shape._replace(num_tables=1 + arguments["num_helpers"])
