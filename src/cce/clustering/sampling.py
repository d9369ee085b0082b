"""Samples to fit on: ids drawn without repetition from a vocabulary that may be far larger, and their vectors.

Uniform samples come from rejection: draw with repetition, keep the first of each. Samples by frequency come from
exponential races (Efraimidis and Spirakis, 2006): id `i` arrives at time `E_i / counts[i]`, and the first arrivals win.
Neither holds more than the sample and one block of ids in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from cce.checks import check_range, check_type
from cce.indexing import check_generator

if TYPE_CHECKING:
    from cce.clustering.kmeans import ClusterSettings

PIECE = 1 << 19  # values that a source is asked for at a time
RACE_BLOCK = 1 << 15  # ids that race at once: 256 kB of arrival times

Source = Callable[[Tensor], Tensor]  # ids (n) → vectors (n, dim)


class Weights(Protocol):
    """Weights of ids: a tensor, or what computes those that are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: Tensor | slice, /) -> Tensor: ...


def sample_ids(
    num_ids: int, num_samples: int, *, counts: Tensor | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """Return `num_samples` different ids of `range(num_ids)`, in rising order: all of them when there are no more.

    With `counts`, `(num_ids,)` and not negative, an id is drawn in proportion to its count (as in drawing one by one
    without putting back); ids that were never counted come only after all others.
    """
    check_generator(generator)
    _check_sizes(num_ids, num_samples, counts)
    if num_samples >= num_ids:
        return torch.arange(num_ids, device="cpu")
    if counts is not None:
        return _first_arrivals(counts, num_samples, generator)[0].sort().values
    if 2 * num_samples > num_ids:  # then it is cheaper to draw those that stay out
        kept = torch.ones(num_ids, dtype=torch.bool, device="cpu")
        kept[_draw_distinct(num_ids, num_ids - num_samples, generator)] = False
        return kept.nonzero().squeeze(1)
    return _draw_distinct(num_ids, num_samples, generator).sort().values


def draw_weighted(
    weights: Weights, num_samples: int, *, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Draw different ids by weight; return them, rising, with weights whose sums are those of all ids on average.

    weights: `(num_ids,)`, positive. An id that is drawn for certain keeps its weight; that of the others is divided by
    the probability with which they were drawn.
    """
    check_generator(generator)
    _check_sizes(len(weights), num_samples, weights if isinstance(weights, Tensor) else None)
    if num_samples >= len(weights):
        return torch.arange(len(weights), device="cpu"), weights[:].float()
    ids, arrivals = _first_arrivals(weights, num_samples + 1, generator)
    last = arrivals.argmax()
    end = arrivals[last]  # all that arrive before it are drawn
    ids = torch.cat([ids[:last], ids[last + 1 :]]).sort().values
    drawn = weights[ids].double()
    return ids, (drawn / (drawn * -end).expm1().neg()).float()


@dataclass(frozen=True)
class Sample:
    """Ids to fit on, with weights or without; their vectors `(n, dim)` are fetched from the source when needed."""

    source: Source
    ids: Tensor
    dim: int
    weights: Tensor | None = None

    def vectors(self, part: Callable[[Tensor], Tensor] = lambda whole: whole) -> Tensor:
        """All vectors, or a part of each, contiguous and in float32."""
        return vectors_of(lambda ids: part(self.source(ids)), self.ids, self.dim).contiguous()


def draw_sample(
    num_ids: int,
    num_rows: int,
    settings: ClusterSettings,
    *,
    counts: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor | None]:
    """At most `points_per_row · num_rows` ids to fit on, and their weights where the settings ask for weights."""
    if settings.weighted and counts is None:
        raise ValueError("counts must be given for weighted=True: how often each id occurs.")
    if counts is not None and len(counts) < num_ids:
        raise ValueError(f"counts must have shape ({num_ids},), one count per id, got {tuple(counts.shape)}.")
    ids = sample_ids(num_ids, settings.points_per_row * num_rows, generator=generator)
    if not settings.weighted or counts is None or not bool((counts[ids] > 0).any()):
        return ids, None
    return ids, counts[ids].float()


def vectors_of(source: Source, ids: Tensor, dim: int) -> Tensor:
    """The vectors of ids in float32, requested in small pieces, to bound the memory that a source needs."""
    first, *rest = torch.split(ids, piece_size(dim))
    vectors = source(first).float()
    if not rest:
        return vectors
    whole = vectors.new_empty(len(ids), vectors.shape[1])
    whole[: len(first)] = vectors
    start = len(first)
    for piece in rest:
        whole[start : start + len(piece)] = source(piece)
        start += len(piece)
    return whole


def piece_size(dim: int) -> int:
    """How many ids of `dim` values to request from a source at a time."""
    return max(1, PIECE // dim)


def _draw_distinct(num_ids: int, num_samples: int, generator: torch.Generator | None) -> Tensor:
    """Draw until `num_samples` different ids have come; the rest of the last draws is dropped, latest first."""
    drawn = torch.empty(0, dtype=torch.int64, device="cpu")
    while drawn.numel() < num_samples:
        missing = num_samples - drawn.numel()
        more = torch.randint(num_ids, (missing + missing // 2 + 16,), generator=generator, device="cpu")
        draws = torch.cat([drawn, more])
        first = np.unique(draws.numpy(), return_index=True)[1]  # of each id
        drawn = draws[np.sort(first)]
    return drawn[:num_samples]


def _first_arrivals(counts: Weights, num_samples: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """The ids that arrive first, in any order, and the times at which they do."""
    ids = torch.empty(0, dtype=torch.int64, device="cpu")
    arrivals = torch.empty(0, dtype=torch.float64, device="cpu")
    latest = torch.tensor(torch.inf, dtype=torch.float64, device="cpu")  # arrival that still counts
    for start in range(0, len(counts), RACE_BLOCK):
        rates = counts[start : start + RACE_BLOCK].to("cpu", torch.float64)
        times = torch.rand(rates.numel(), dtype=torch.float64, generator=generator, device="cpu").neg_().log1p_().neg_()
        times /= rates.clamp(min=1e-200)  # never counted: after all others
        early = (times <= latest).nonzero().squeeze(1)
        arrivals, ids = torch.cat([arrivals, times[early]]), torch.cat([ids, early + start])
        if len(ids) > num_samples and (len(ids) > 2 * num_samples or start + RACE_BLOCK >= len(counts)):
            arrivals, kept = arrivals.topk(num_samples, largest=False)
            ids, latest = ids[kept], arrivals[-1] if num_samples else latest
    return ids, arrivals


def _check_sizes(num_ids: int, num_samples: int, counts: Tensor | None) -> None:
    check_range("num_ids", num_ids, 0, 2**63)
    check_range("num_samples", num_samples, 0, 2**63)
    if counts is None:
        return
    check_type("counts", counts, Tensor, "a Tensor")
    if counts.shape != (num_ids,):
        raise ValueError(f"counts must have shape ({num_ids},), one count per id, got {tuple(counts.shape)}.")
    if num_ids and not bool((counts.min() >= 0) & counts.max().isfinite()):
        raise ValueError(f"counts must be finite and not negative, got values down to {counts.min().item()}.")
