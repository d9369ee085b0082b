"""Tables whose codebook changes its shape at a clustering."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from cce.embeddings import ClusteredEmbedding, CodebookShape

if TYPE_CHECKING:
    from cce.embeddings import Learned


class ResizedEmbedding(ClusteredEmbedding):
    """CCE with tables of another shape from some clustering on."""

    @property
    @abstractmethod
    def later_shape(self) -> CodebookShape:
        """The shape from then on."""

    def become(self, learned: Learned) -> None:
        """Take the new shape first; the codebook keeps its memory if it keeps its size."""
        self._resize(CodebookShape(*learned.tables.shape))
        super().become(learned)

    def _resize(self, shape: CodebookShape) -> None:
        num_hashes = shape.num_columns * (shape.num_tables - 1)
        if (num_hashes, shape.num_rows) != (self.helper.num_hashes, self.helper.num_rows):
            self.helper.num_hashes, self.helper.num_rows = num_hashes, shape.num_rows
            self.helper.seeds = self.helper.seeds[:num_hashes].clone()
        if self.codebook.shape != shape.matrix:
            self.codebook.data = self.codebook.new_empty(shape.matrix)
        self.codebook_shape = shape

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """A checkpoint may be of the later shape."""
        codebook, seeds = state_dict.get(prefix + "codebook"), state_dict.get(prefix + "helper.seeds")
        later = self.later_shape
        num_hashes = later.num_columns * (later.num_tables - 1)
        if codebook is not None and seeds is not None and (len(codebook), len(seeds)) == (later.matrix[0], num_hashes):
            self._resize(later)
            self.assignments.resize(later.num_rows)
        super()._load_from_state_dict(state_dict, prefix, *args)
