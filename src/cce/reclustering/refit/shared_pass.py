"""One pass over the rows for the ids of several features at once.

A forward and a backward pass give the slope of a row's logit in the vectors of *all* its ids, so that any number of
features costs little more than one. Rows are read in their order; what is held is a curvature for each id.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.compiled import available, compile_loops
from cce.distributed import sum_over_ranks
from cce.reclustering.refit.packing import block_dim_of, pack, packed_size
from cce.reclustering.refit.posterior import PackedFit, Parabolas, Prior

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from cce.distributed import Ranks
    from cce.reclustering.refit.hooks import Found, LookupHooks, Recorded, Target
    from cce.reclustering.refit.rows import Piece, Selection, Source

PASS_ROWS = 1 << 13  # that the model sees at a time
OUTER_ROWS = 1 << 12  # whose J Jᵀ are written out at a time, where nothing is compiled


class SharedPass:
    """Some rows, as functions of the vectors of some ids.

    selection: which rows; of several processes each passes over a share of them, and all have the sums of all.
    """

    def __init__(self, source: Source, hooks: LookupHooks, targets: Sequence[Target], selection: Selection) -> None:
        self.source, self.hooks, self.targets, self.selection = source, hooks, targets, selection
        self.ranks = selection.ranks

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
        for piece, recorded, places in self._batches(vectors, with_slopes=True):
            losses, first, second = _derivatives(partial(self.source.losses, piece=piece), recorded.outputs)
            crowds = _crowds(places, len(losses))
            for total, found in zip(sums, places, strict=True):
                total.add(found, torch.stack([losses, first, second, second * crowds], 1))
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
        for piece, recorded, places in self._batches(vectors, with_slopes=False):
            losses = self.source.losses(recorded.outputs, piece).detach().float().cpu()
            for total, found in zip(totals, places, strict=True):
                total.index_add_(0, found.slots, losses[found.rows])
        return [sum_over_ranks(total, self.ranks) for total in totals]

    def _batches(
        self, vectors: Sequence[Tensor], *, with_slopes: bool
    ) -> Iterator[tuple[Piece, Recorded, list[Found]]]:
        """The rows, with the vectors of the ids moved."""
        shifts = [(target, new - target.present) for new, target in zip(vectors, self.targets, strict=True)]
        moves = [(target, shift) for target, shift in shifts if bool(shift.any())]
        with self.hooks.attached():
            for piece in self.source.pieces(self.selection, PASS_ROWS):
                recorded = self.hooks.record(partial(self.source.forward, piece), moves, with_slopes=with_slopes)
                kept = self.source.kept(piece, recorded, self.selection)
                yield piece, recorded, [recorded.find(target, kept) for target in self.targets]


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

    def add(self, found: Found, derivatives: Tensor) -> None:
        """derivatives `(rows, 4)`, as in `others`."""
        slopes, block_dim = found.slopes, block_dim_of(self.packed.shape[1], found.slopes.shape[1])
        if block_dim < slopes.shape[1]:
            self.common.add_((slopes * derivatives[found.rows, 2:3]).T @ slopes)
        if available:
            sums = self.packed.numpy(), self.gradients.numpy(), self.others.numpy()
            places = found.rows.numpy(), found.slots.numpy(), slopes.contiguous().numpy()
            _add_rows(*places, derivatives.contiguous().numpy(), block_dim, *sums)
            return
        for start in range(0, len(found.rows), OUTER_ROWS):
            rows, slots, some = (each[start : start + OUTER_ROWS] for each in found)
            derived, blocks = derivatives[rows], some.view(len(rows), -1, 1, block_dim)
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


def _derivatives(loss: Callable[[Tensor], Tensor], outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each row, its slope in the output, and its curvature, which is held above zero."""
    with torch.enable_grad():
        outputs = outputs.detach().requires_grad_()
        losses = loss(outputs)
        (first,) = torch.autograd.grad(losses.sum(), outputs, create_graph=True)
        if not first.requires_grad:
            raise ValueError("loss must be twice differentiable in the model's output, got a constant slope.")
        (second,) = torch.autograd.grad(first.sum(), outputs)
    return losses.detach().float().cpu(), first.detach().float().cpu(), second.clamp(min=0).float().cpu()


@compile_loops
def _add_rows(
    rows: np.ndarray,
    slots: np.ndarray,
    slopes: np.ndarray,
    derivatives: np.ndarray,
    block_dim: int,
    packed: np.ndarray,
    gradients: np.ndarray,
    others: np.ndarray,
) -> None:
    dim = gradients.shape[1]
    for place in range(len(rows)):
        row, slot = rows[place], slots[place]
        for kind in range(4):
            others[slot, kind] += derivatives[row, kind]
        first, second = derivatives[row, 1], derivatives[row, 2]
        place_of = 0
        for i in range(dim):
            gradients[slot, i] += first * slopes[place, i]
            weighted, start = second * slopes[place, i], i - i % block_dim
            for j in range(i - start + 1):
                packed[slot, place_of + j] += weighted * slopes[place, start + j]
            place_of += i - start + 1
