"""How large a CCE table is: budgets in parameters and bytes, which ids learn pointers, and the shapes that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cce.embeddings.base import check_budget
from cce.embeddings.codebook_layout import CodebookLayout
from cce.embeddings.linear import LinearEmbedding
from cce.embeddings.presets import PRESETS, Preset
from cce.embeddings.shapes import Shapes
from cce.embeddings.sizing import most_within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class ClusteredSizes(LinearEmbedding):
    """What the class of CCE answers before a table is made."""

    @classmethod
    def complete_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """`options` with defaults, and with what `counts` say."""
        complete = super().complete_options(options)
        given = (complete[name] for name in ("num_learned", "counts", "preset"))
        return complete | {"num_learned": cls.find_num_learned(*given)}

    @classmethod
    def size_for_budget(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Size every table, helpers included, to the most rows within the budget, or to `max_rows`."""
        del num_embeddings
        one = CodebookLayout.of(embedding_dim, dict(options) | {"num_rows": 1, "first_rows": None})
        per_row = one.num_tables * one.width
        check_budget(cls.method, num_params, per_row)
        num_rows, max_rows = num_params // per_row, options["max_rows"]
        return {"num_rows": num_rows if max_rows is None else min(num_rows, max_rows)}

    @classmethod
    def training_defaults(cls, preset: str = "tuned") -> Preset:
        """The columns, the schedule and the least count of an id that has pointers."""
        cls.check_options(preset=preset)
        return PRESETS[preset]

    @classmethod
    def shapes(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> Shapes:
        """The codebook; pointers of every learned id, their counters, and hash functions."""
        layout, num_learned = CodebookLayout.of(embedding_dim, arguments), arguments["num_learned"]
        num_learned = num_embeddings if num_learned is None else num_learned
        pointers = num_learned, layout.num_columns, layout.num_rows
        num_counts = (num_learned if arguments["track_counts"] else 0) + (arguments["settle_after"] is not None)
        return Shapes({"codebook": layout.shape}, layout.num_tables, pointers, num_counts)

    @classmethod
    def smallest_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options of the smallest table: no pointers, unless `num_learned` is given."""
        return {} if options["num_learned"] is not None else {"num_learned": 0}

    @classmethod
    def size_for_bytes(
        cls, num_embeddings: int, embedding_dim: int, nbytes: int, options: Mapping[str, Any], *, itemsize: int = 4
    ) -> dict[str, Any]:
        """Choose the rows, and the number of ids with learned pointers if it is not given.

        Pointers of all ids if half of the bytes hold them, or else as many as half holds: the first ids, which are the
        most frequent. The codebook has the rest. Whatever the best division is, neither has less than half of it.
        """
        size, given = (num_embeddings, embedding_dim), dict(options)
        if given["num_learned"] is not None:
            return super().size_for_bytes(*size, nbytes, given, itemsize=itemsize)

        def nbytes_of(num_learned: int) -> int:
            return cls.footprint(*size, given | sizes | {"num_learned": num_learned}, itemsize=itemsize).nbytes

        without = given | {"num_learned": 0}
        try:
            sizes = super().size_for_bytes(*size, nbytes - nbytes // 2, without, itemsize=itemsize)
        except ValueError:  # half of the bytes is less than the smallest codebook
            sizes = super().size_for_bytes(*size, nbytes, without, itemsize=itemsize)
        num_learned = most_within(nbytes, num_embeddings, nbytes_of) or 0
        if num_learned == num_embeddings:
            sizes = super().size_for_bytes(*size, nbytes, given | {"num_learned": num_learned}, itemsize=itemsize)
        return sizes | {"num_learned": num_learned}

    @classmethod
    def find_num_learned(cls, num_learned: int | None, counts: Tensor | None, preset: str) -> int | None:
        """How many ids learn pointers, as given or by their counts; None for all."""
        if counts is None:
            return num_learned
        if num_learned is not None:
            raise ValueError(f"give num_learned or counts, got num_learned={num_learned} and counts.")
        return cls.training_defaults(preset).num_learned(counts)
