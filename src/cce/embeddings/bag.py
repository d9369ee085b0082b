"""Bags of ids: any table, composed first and pooled after.

The order matters. Pooling the pieces before they are composed, as some public code does, gives other vectors for every
bag of more than one id wherever composing is not linear in the pieces of all ids at once.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from cce.checks import check_choice, check_flag, check_type, shown
from cce.embeddings.base import Embedding, checked_padding
from cce.embeddings.clusterable import Finalizable
from cce.embeddings.initialization import check_placement
from cce.embeddings.row_lookup import sum_bags

Mode = Literal["sum", "mean", "max"]


class EmbeddingBag(nn.Module):
    """`torch.nn.EmbeddingBag`'s call around any `table`.

    The constructor differs from torch's: it takes a table rather than its sizes, and options of the table
    (`sparse`, the start) are given to that.

    Ids `(n)` with `offsets` `(bags)`, or ids `(bags, length)`, give vectors `(bags, embedding_dim)`. Ids equal to
    `padding_idx` (by default the table's) are left out of the pool and its mean; an empty bag gives zeros. With
    `include_last_offset` the last offset is the end of the last bag: ids after it are in none.

    device, dtype: where to move the table, if they are given.
    """

    def __init__(
        self,
        table: Embedding,
        *,
        mode: Mode = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_type("table", table, nn.Module, "an embedding table")
        check_choice("mode", mode, ("sum", "mean", "max"))
        check_flag("include_last_offset", include_last_offset)
        check_placement(device, dtype)
        self.table = table.to(device, dtype)
        self.mode = mode
        self.include_last_offset = include_last_offset
        self.padding_idx = table.padding_idx if padding_idx is None else padding_idx
        if self.padding_idx is not None:
            self.padding_idx = checked_padding(self.padding_idx, table.num_embeddings)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw hash functions, pointers and parameters of the table again, as its constructor does."""
        self.table.reset_parameters(generator)

    def __getattr__(self, name: str) -> Tensor | nn.Module:
        if name != "weight":
            return nn.Module.__getattr__(self, name)
        raise AttributeError("'EmbeddingBag' object has no attribute 'weight': table.to_dense() gives the whole table.")

    @property
    def num_embeddings(self) -> int | None:
        found: int | None = self.table.num_embeddings
        return found

    @property
    def embedding_dim(self) -> int:
        return self.table.embedding_dim

    def forward(
        self,
        input: Tensor,  # noqa: A002  # torch's name for it
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """One pooled vector for each bag, `(bags, embedding_dim)`."""
        ids = input
        check_type("ids", ids, Tensor, "a Tensor")
        check_type("offsets", offsets, (Tensor, type(None)), "a Tensor")
        if per_sample_weights is not None:
            self._check_weights(ids, per_sample_weights)
        return self.pool(ids, offsets, per_sample_weights)

    def pool(self, ids: Tensor, offsets: Tensor | None, weights: Tensor | None) -> Tensor:
        """The same with weights of any dtype, in which they take part in the sums."""
        bag, num_bags = self._bags(ids, offsets)  # which bag each id is in
        flat = ids.reshape(-1)
        unpadded = torch.ones_like(flat, dtype=torch.bool) if self.padding_idx is None else flat != self.padding_idx
        summed = self._sum_rows(ids, offsets, weights)
        if summed is not None:
            return summed / _counts(summed, bag, unpadded, num_bags)[: len(summed)] if self.mode == "mean" else summed
        vectors = self.table(flat)  # composed: (n, embedding_dim)
        if self.mode == "max":
            pooled = _pool_max(vectors, bag, unpadded, num_bags)
        else:
            pooled = self._pool(vectors, weights, bag, unpadded, num_bags)
        has_rest = self.include_last_offset and offsets is not None  # ids after the last offset, which no bag has
        return pooled[:-1] if has_rest else pooled

    def _pool(self, vectors: Tensor, weights: Tensor | None, bag: Tensor, unpadded: Tensor, num_bags: int) -> Tensor:
        wide = torch.promote_types(vectors.dtype, torch.float32)  # half precision cannot count beyond a few hundred
        terms = vectors.to(wide)
        if weights is not None:
            terms = terms * weights.reshape(-1, 1).to(wide)
        terms = torch.where(unpadded.unsqueeze(-1), terms, 0)
        pooled = terms.new_zeros(num_bags, self.embedding_dim).index_add(0, bag, terms)
        if self.mode == "mean":
            pooled = pooled / _counts(terms, bag, unpadded, num_bags)
        return pooled.to(vectors.dtype)

    def _sum_rows(self, ids: Tensor, offsets: Tensor | None, weights: Tensor | None) -> Tensor | None:
        """Sums of bags of a table that trains as int8 rows, in one call; None if there is none for it."""
        if self.mode == "max" or not isinstance(self.table, Finalizable) or self.table.is_final:
            return None
        if offsets is None:
            ends = torch.arange(ids.shape[0] + 1) * ids.shape[1]
        elif self.include_last_offset:
            ends = offsets.long()
        else:
            ends = torch.cat([offsets.long(), offsets.new_tensor([len(ids)], dtype=torch.int64)])
        own = None if weights is None else weights.reshape(-1)
        return sum_bags(self.table, ids.reshape(-1), ends, own, self.padding_idx)

    def _bags(self, ids: Tensor, offsets: Tensor | None) -> tuple[Tensor, int]:
        if ids.dim() == 2:
            if offsets is not None:
                raise ValueError("offsets must be None when ids are 2-D: each row of ids is a bag.")
            bags = torch.arange(ids.shape[0], device=ids.device)
            return bags.repeat_interleave(ids.shape[1]), ids.shape[0]
        if ids.dim() != 1:
            raise ValueError(f"ids must be 1-D with offsets, or 2-D, got shape {tuple(ids.shape)}.")
        if offsets is None:
            raise ValueError("offsets must be given when ids are 1-D.")
        starts = self._check_offsets(ids, offsets)
        positions = torch.arange(ids.shape[0], device=ids.device)
        return torch.searchsorted(starts, positions, right=True) - 1, starts.shape[0]

    def _check_offsets(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """The starts of the bags, int64."""
        if offsets.dim() != 1 or offsets.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"offsets must be a 1-D int32 or int64 tensor, got {offsets.dtype} of {offsets.dim()}-D.")
        if self.include_last_offset and offsets.numel() == 0:
            raise ValueError("offsets must hold at least one value with include_last_offset=True, got none.")
        check_offsets(offsets, ids.shape[0])
        return offsets.long()

    def _check_weights(self, ids: Tensor, weights: Tensor) -> None:
        check_type("per_sample_weights", weights, Tensor, "a Tensor")
        if self.mode != "sum":
            raise ValueError(f"per_sample_weights need mode='sum', got mode={self.mode!r}.")
        if weights.shape != ids.shape:
            raise ValueError(
                f"per_sample_weights must have the shape of ids, got {tuple(weights.shape)} for {tuple(ids.shape)}."
            )
        dtype = next(self.table.parameters()).dtype
        if weights.dtype != dtype:
            raise TypeError(f"per_sample_weights must have the dtype of the table, {dtype}, got {weights.dtype}.")

    def extra_repr(self) -> str:
        return f"mode={self.mode!r}"


def _counts(like: Tensor, bag: Tensor, unpadded: Tensor, num_bags: int) -> Tensor:
    """How many ids are in each bag, at least 1: `(num_bags, 1)`."""
    counts = like.new_zeros(num_bags).index_add(0, bag, unpadded.to(like.dtype))
    return counts.clamp(min=1).unsqueeze(-1)


def _pool_max(vectors: Tensor, bag: Tensor, unpadded: Tensor, num_bags: int) -> Tensor:
    lowest = torch.where(unpadded.unsqueeze(-1), vectors, float("-inf"))
    start = vectors.new_full((num_bags, vectors.shape[1]), float("-inf"))
    tops = start.scatter_reduce(0, bag.unsqueeze(-1).expand_as(vectors), lowest, "amax")
    return torch.where(tops.isneginf(), 0, tops)  # empty bags


def check_offsets(offsets: Tensor, num_ids: int, *, whole: bool = False) -> None:
    """Reject offsets that do not rise from 0 to at most the number of ids, or to just that; not where it would wait."""
    if offsets.device.type != "cpu" or torch.compiler.is_compiling():
        return
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0 if num_ids == 0 else -1, 0)
    if first != 0 or last > num_ids or (whole and last < num_ids) or (offsets.diff() < 0).any():
        end = "the number of ids" if whole else "at most the number of ids"
        raise ValueError(f"offsets must rise from 0 to {end}, {num_ids}, got {shown(offsets)}.")
