"""One pass over the rows for the ids of several features at once.

A forward and a backward pass give the slope of a row's logit in the vectors of *all* its ids, so that any number of
features costs little more than one. Rows are read in their order; what is held is a curvature for each id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cce.compiled import available, compile_loops
from cce.distributed import sum_over_ranks
from cce.reclustering.refit.packing import block_dim_of, pack, packed_size
from cce.reclustering.refit.posterior import PackedFit, Parabolas, Prior
from cce.reclustering.refit.rows import ALONE, bags_of
from cce.reclustering.refit.slopes import Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import nn

    from cce.collection import EmbeddingCollection
    from cce.distributed import Ranks
    from cce.reclustering.refit.rows import Rows
    from cce.schema import Batch

PASS_ROWS = 1 << 13  # that the model sees at a time
OUTER_ROWS = 1 << 12  # whose J Jᵀ are written out at a time, where nothing is compiled


@dataclass(frozen=True)
class Target:
    """Ids of one feature that are to move, and their vectors now; everything else is fixed."""

    feature: int  # the column of a batch's ids
    ids: Tensor  # (n), in order
    present: Tensor  # (n, embedding_dim) float32
    num_embeddings: int
    block_dim: int  # dimensions whose curvatures with each other are held
    slots: np.ndarray = field(init=False)  # (num_embeddings) int32: where an id is in `ids`, or -1

    def __post_init__(self) -> None:
        slots = np.full(self.num_embeddings, -1, np.int32)
        slots[self.ids.numpy()] = np.arange(len(self.ids), dtype=np.int32)
        object.__setattr__(self, "slots", slots)


class Found(NamedTuple):
    """Where ids of a target occur in a batch."""

    rows: Tensor  # (occurrences) int64, of the batch
    slots: Tensor  # (occurrences) int64, in the target's ids
    shares: Tensor  # (occurrences): how much of the id's vector is in that of its row


class SharedPass:
    """Some rows, as functions of the vectors of some ids.

    numbers: the numbers of the rows, so many at a time: those of this process.
    loss: logits and a batch to the loss of each row.
    ranks: processes that do the same, and pass over a share of the rows each; all have the sums of all.
    """

    def __init__(
        self,
        model: nn.Module,
        tables: EmbeddingCollection,
        rows: Rows,
        targets: Sequence[Target],
        *,
        numbers: Callable[[int], Iterable[np.ndarray]],
        loss: Callable[[Tensor, Batch], Tensor],
        ranks: Ranks = ALONE,
    ) -> None:
        self.model, self.tables, self.rows = model, tables, rows
        self.targets, self.numbers, self.loss, self.ranks = targets, numbers, loss, ranks
        self.device = next(model.parameters()).device

    def fit(self, learn: Callable[[Sequence[Parabolas]], Sequence[Prior]], *, num_steps: int) -> list[PackedFit]:
        """So many Gauss-Newton steps from the present vectors, under the priors that are learned at the first."""
        vectors = [target.present for target in self.targets]
        found = self.parabolas(vectors)
        priors = learn(found)
        vectors = self.descend(found, priors)
        for _ in range(num_steps - 1):
            del found  # curvatures are held once
            found = self.parabolas(vectors)
            vectors = self.descend(found, priors)
        every = zip(found, priors, vectors, strict=True)
        return [each.with_prior(prior, vector) for each, prior, vector in every]

    def parabolas(self, vectors: Sequence[Tensor]) -> list[Parabolas]:
        """The losses of the ids around vectors, one pass."""
        sums = [_Sums.zeros(target) for target in self.targets]
        for probe, places in self._batches(vectors):
            logits, slopes = probe.slopes()
            losses, first, second = _derivatives(self.loss, logits, probe.batch)
            crowds = _crowds(places, len(losses))
            for target, total, found in zip(self.targets, sums, places, strict=True):
                own = slopes[:, target.feature].float().cpu().contiguous()
                total.add(found, own, torch.stack([losses, first, second, second * crowds], 1))
        for total in sums:
            total.add_up(self.ranks)
        every = zip(self.targets, vectors, sums, strict=True)
        return [total.parabolas(target.ids, points) for target, points, total in every]

    def descend(self, parabolas: Sequence[Parabolas], priors: Sequence[Prior]) -> list[Tensor]:
        """Go to the minima, or a part of the way: what was tried is the joint move, and for an id its own rows count.

        If the loss of an id with its prior would rise, it goes to the minimum of the parabola through both losses,
        with the slope that is known: less than half of the way.
        """
        vectors = [each.step(prior) for each, prior in zip(parabolas, priors, strict=True)]
        for each, prior, tried, loss in zip(parabolas, priors, vectors, self.losses(vectors), strict=True):
            for some in each.split():
                points, step = each.points[some], tried[some] - each.points[some]
                rise = loss[some] + prior.cost(tried[some]) - each.losses[some] - prior.cost(points)
                slope = ((each.gradients[some] + prior.slope(points)) * step).sum(1)
                share = torch.where(rise > 0, slope / (2 * (slope - rise)), 1).nan_to_num(0).clamp(0, 1)
                tried[some] = torch.addcmul(points, share.unsqueeze(1), step)
        return vectors

    def losses(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """The loss of each id on its rows if all had these vectors, one pass without a backward."""
        totals = [torch.zeros(len(target.ids)) for target in self.targets]
        for probe, places in self._batches(vectors):
            losses = self.loss(probe.logits(), probe.batch).float().cpu()
            for total, found in zip(totals, places, strict=True):
                total.index_add_(0, found.slots, losses[found.rows])
        return [sum_over_ranks(total, self.ranks) for total in totals]

    def _batches(self, vectors: Sequence[Tensor]) -> Iterator[tuple[Probe, list[Found]]]:
        """The rows that have any of the ids, with the vectors of these ids moved."""
        shifts = [new - target.present for new, target in zip(vectors, self.targets, strict=True)]
        moved = [bool(shift.any()) for shift in shifts]
        for numbers in self.numbers(PASS_ROWS):
            batch = self.rows.fetch(numbers)
            places = [self._find(batch, target) for target in self.targets]
            has_any = _crowds(places, len(numbers)) > 0
            if not has_any.all():
                batch = self.rows.fetch(numbers[has_any.numpy()])
                places = [self._find(batch, target) for target in self.targets]
            if len(batch):
                yield self._moved(batch, places, shifts, moved), places

    def _moved(self, batch: Batch, places: Sequence[Found], shifts: Sequence[Tensor], moved: Sequence[bool]) -> Probe:
        probe = Probe(self.model, self.tables, batch.to(self.device))
        for target, found, shift, is_moved in zip(self.targets, places, shifts, moved, strict=True):
            if is_moved:
                probe.move(target.feature, found.rows, shift[found.slots] * found.shares.unsqueeze(1))
        return probe

    def _find(self, batch: Batch, target: Target) -> Found:
        ids, lengths = bags_of(batch, target.feature)
        slots = torch.from_numpy(target.slots[ids.numpy()]).long()
        rows = torch.repeat_interleave(lengths) if batch.offsets is not None else torch.arange(len(batch))
        shares = 1 / lengths[rows] if self._is_mean(batch) else torch.ones(len(rows))
        known = slots >= 0
        return Found(rows[known], slots[known], shares[known])

    def _is_mean(self, batch: Batch) -> bool:
        return batch.offsets is not None and self.tables.pooling != "sum"


def _crowds(places: Sequence[Found], num_rows: int) -> Tensor:
    """How many ids of each row move."""
    return torch.bincount(torch.cat([found.rows for found in places]), minlength=num_rows)


@dataclass(frozen=True)
class _Sums:
    """Sums over the rows of each id."""

    packed: Tensor  # (n, packed_size): curvatures, their diagonal blocks
    gradients: Tensor  # (n, dim)
    common: Tensor  # (dim, dim): whole curvatures, summed over ids too
    others: Tensor  # (n, 4): loss, its slope and curvature in the logit, and the latter times the crowd

    @classmethod
    def zeros(cls, target: Target) -> _Sums:
        num_ids, dim = target.present.shape
        packed = torch.zeros(num_ids, packed_size(dim, target.block_dim))
        return cls(packed, torch.zeros(num_ids, dim), torch.zeros(dim, dim), torch.zeros(num_ids, 4))

    def add(self, found: Found, slopes: Tensor, derivatives: Tensor) -> None:
        """slopes `(rows, dim)`; derivatives `(rows, 4)`, as in `others`."""
        block_dim = block_dim_of(self.packed.shape[1], slopes.shape[1])
        if block_dim < slopes.shape[1]:
            some = slopes[found.rows] * found.shares.unsqueeze(1)
            self.common.add_((some * derivatives[found.rows, 2:3]).T @ some)
        if available:
            sums = self.packed.numpy(), self.gradients.numpy(), self.others.numpy()
            places = found.rows.numpy(), found.slots.numpy(), found.shares.numpy()
            _add_rows(*places, slopes.numpy(), derivatives.contiguous().numpy(), block_dim, *sums)
            return
        for start in range(0, len(found.rows), OUTER_ROWS):
            rows, slots, shares = (each[start : start + OUTER_ROWS] for each in found)
            some, derived = slopes[rows] * shares.unsqueeze(1), derivatives[rows]
            blocks = some.view(len(rows), -1, 1, block_dim)
            outer = (some * derived[:, 2:3]).view_as(blocks).transpose(2, 3) * blocks
            self.packed.index_add_(0, slots, pack(outer.flatten(1, 2)))
            self.gradients.index_add_(0, slots, some * derived[:, 1:2])
            self.others.index_add_(0, slots, derived)

    def add_up(self, ranks: Ranks) -> None:
        """Let the sums of all ranks be there, on every rank."""
        for tensor in vars(self).values():
            sum_over_ranks(tensor, ranks)

    def parabolas(self, ids: Tensor, points: Tensor) -> Parabolas:
        """Of the ids whose sums they are."""
        crowds = self.others[:, 3] / self.others[:, 2].clamp(min=torch.finfo(torch.float32).tiny)
        common = self.common if block_dim_of(self.packed.shape[1], points.shape[1]) < points.shape[1] else None
        sums = self.others[:, 0], self.gradients, self.packed
        return Parabolas(ids, points, *sums, crowds.clamp(min=1), common)


def _derivatives(
    loss: Callable[[Tensor, Batch], Tensor], logits: Tensor, batch: Batch
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each row, its slope in the logit, and its curvature, which is held above zero."""
    with torch.enable_grad():
        logits = logits.detach().requires_grad_()
        losses = loss(logits, batch)
        (first,) = torch.autograd.grad(losses.sum(), logits, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), logits)
    return losses.detach().float().cpu(), first.detach().float().cpu(), second.clamp(min=0).float().cpu()


@compile_loops
def _add_rows(
    rows: np.ndarray,
    slots: np.ndarray,
    shares: np.ndarray,
    slopes: np.ndarray,
    derivatives: np.ndarray,
    block_dim: int,
    packed: np.ndarray,
    gradients: np.ndarray,
    others: np.ndarray,
) -> None:
    dim = gradients.shape[1]
    for place in range(len(rows)):
        row, slot, share = rows[place], slots[place], shares[place]
        for kind in range(4):
            others[slot, kind] += derivatives[row, kind]
        first, second = derivatives[row, 1] * share, derivatives[row, 2] * share * share
        place_of = 0
        for i in range(dim):
            gradients[slot, i] += first * slopes[row, i]
            weighted, start = second * slopes[row, i], i - i % block_dim
            for j in range(i - start + 1):
                packed[slot, place_of + j] += weighted * slopes[row, start + j]
            place_of += i - start + 1
