"""One pass over the rows for the ids of several tables at once: per-id losses, gradients and Gauss-Newton Hessians.

A forward and a backward pass give the Jacobian of a row's output in the vectors of *all* its ids, so any number of
tables costs little more than one. Rows are read in their order; what is held is a Hessian for each id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cce.compiled import available, compile_loops
from cce.distributed import Ranks, sum_over_ranks
from cce.reclustering.refit.blocks import block_dim_of, pack, packed_size
from cce.reclustering.refit.estimates import Estimates, Prior, Quadratics

if TYPE_CHECKING:
    import numpy as np

    from cce.reclustering.refit.hooks import Found, LookupHooks, Recorded, Target
    from cce.reclustering.refit.sources import Piece, Selection, Source

OUTER_ROWS = 1 << 12  # whose J Jᵀ are written out at a time, where nothing is compiled


class SharedPass:
    """Some rows, as functions of the vectors of some ids.

    selection: which rows; of several processes each passes over a share of them, and all have the sums of all.
    """

    def __init__(self, source: Source, hooks: LookupHooks, targets: Sequence[Target], selection: Selection) -> None:
        self.source, self.hooks, self.targets, self.selection = source, hooks, targets, selection
        self.ranks = selection.ranks
        self.num_shortened = 0  # ids that went a part of the way

    def fit(
        self, learn: Callable[[Sequence[Quadratics]], Sequence[Prior]], *, line_search: bool = True
    ) -> list[Estimates]:
        """One Gauss-Newton step from the present vectors, under the priors that are learned from them.

        line_search: try the step in a second pass, and go a part of the way where it is too long.
        """
        found = self.quadratics([target.present for target in self.targets])
        priors = learn(found)
        vectors = [each.step(prior) for each, prior in zip(found, priors, strict=True)]
        if line_search:
            vectors = self.shorten(found, priors, vectors)
        every = zip(found, priors, vectors, strict=True)
        return [each.with_prior(prior, own) for each, prior, own in every]

    def quadratics(self, vectors: Sequence[Tensor]) -> list[Quadratics]:
        """The losses of the ids around vectors, one pass."""
        sums = [_Sums.zeros(target) for target in self.targets]
        for piece, recorded, places in self._batches(vectors, with_jacobians=True):
            losses, first, second = _derivatives(partial(self.source.losses, piece=piece), recorded.outputs)
            num_moving = torch.bincount(torch.cat([found.rows for found in places]), minlength=len(losses))
            derivatives = torch.stack([losses, torch.ones_like(losses), second, second * num_moving, first], 1)
            for total, found in zip(sums, places, strict=True):
                total.add(found, derivatives)
        for total in sums:
            total.add_up(self.ranks)
        every = zip(self.targets, vectors, sums, strict=True)
        return [total.quadratics(target.ids, points) for target, points, total in every]

    def shorten(self, quadratics: Sequence[Quadratics], priors: Sequence[Prior], vectors: list[Tensor]) -> list[Tensor]:
        """Go to the vectors, or a part of the way: what is tried is the joint move, and for an id its own rows count.

        If the loss of an id with its prior would rise, it goes to the minimum of the quadratic through both losses,
        with the gradient that is known: less than half of the way.
        """
        for each, prior, tried, loss in zip(quadratics, priors, vectors, self.losses(vectors), strict=True):
            for some in each.split():
                points, step = each.points[some], tried[some] - each.points[some]
                rise = loss[some] + prior.cost(tried[some]) - each.losses[some] - prior.cost(points)
                slope = ((each.gradients[some] + prior.gradient(points)) * step).sum(1)
                share = torch.where(rise > 0, slope / (2 * (slope - rise)), 1).nan_to_num(0).clamp(0, 1)
                tried[some] = torch.addcmul(points, share.unsqueeze(1), step)
                self.num_shortened += int((share < 1).sum())
        return vectors

    def losses(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """The loss of each id on its rows if all had these vectors, one pass without a backward."""
        totals = [torch.zeros(len(target.ids)) for target in self.targets]
        for piece, recorded, places in self._batches(vectors, with_jacobians=False):
            losses = self.source.losses(recorded.outputs, piece).detach().float().cpu()
            for total, found in zip(totals, places, strict=True):
                total.index_add_(0, found.slots, losses[found.rows])
        return [sum_over_ranks(total, self.ranks) for total in totals]

    def _batches(
        self, vectors: Sequence[Tensor], *, with_jacobians: bool
    ) -> Iterator[tuple[Piece, Recorded, list[Found]]]:
        """The rows, with the vectors of the ids moved."""
        shifts = [(target, new - target.present) for new, target in zip(vectors, self.targets, strict=True)]
        moves = [(target, shift) for target, shift in shifts if bool(shift.any())]
        with self.hooks.attached():
            for piece in self.source.pieces(self.selection):
                recorded = self.hooks.record(partial(self.source.forward, piece), moves, with_jacobians=with_jacobians)
                kept = self.source.kept(piece, recorded, self.selection)
                yield piece, recorded, [recorded.find(target, kept) for target in self.targets]


@dataclass(frozen=True)
class _Sums:
    """Sums over the rows of each id."""

    packed: Tensor  # (n, packed_size): diagonal blocks of the Hessians
    gradients: Tensor  # (n, dim)
    common: Tensor  # (dim, dim): whole Hessians, summed over ids too
    others: Tensor  # (n, 4): losses, rows, second derivatives, and these times the number of ids that move

    @classmethod
    def zeros(cls, target: Target) -> _Sums:
        num_ids, dim = target.present.shape
        packed = torch.zeros(num_ids, packed_size(dim, target.block_dim))
        return cls(packed, torch.zeros(num_ids, dim), torch.zeros(dim, dim), torch.zeros(num_ids, 4))

    def add(self, found: Found, derivatives: Tensor) -> None:
        """derivatives `(rows, 5)`: those of `others`, and the first derivative in the output."""
        jacobians, block_dim = found.jacobians, block_dim_of(self.packed.shape[1], found.jacobians.shape[1])
        if block_dim < jacobians.shape[1]:
            self.common.add_((jacobians * derivatives[found.rows, 2:3]).T @ jacobians)
        if available:
            sums = self.packed.numpy(), self.gradients.numpy(), self.others.numpy()
            places = found.rows.numpy(), found.slots.numpy(), jacobians.contiguous().numpy()
            _add_rows(*places, derivatives.numpy(), block_dim, *sums)
            return
        for start in range(0, len(found.rows), OUTER_ROWS):
            rows, slots, some = (each[start : start + OUTER_ROWS] for each in found)
            derived, blocks = derivatives[rows], some.view(len(rows), -1, 1, block_dim)
            outer = (some * derived[:, 2:3]).view_as(blocks).transpose(2, 3) * blocks
            self.packed.index_add_(0, slots, pack(outer.flatten(1, 2)))
            self.gradients.index_add_(0, slots, some * derived[:, 4:5])
            self.others.index_add_(0, slots, derived[:, :4])

    def add_up(self, ranks: Ranks) -> None:
        """Let the sums of all ranks be there, on every rank."""
        for tensor in vars(self).values():
            sum_over_ranks(tensor, ranks)

    def quadratics(self, ids: Tensor, points: Tensor) -> Quadratics:
        """Of the ids whose sums they are."""
        num_moving = self.others[:, 3] / self.others[:, 2].clamp(min=torch.finfo(torch.float32).tiny)
        common = self.common if block_dim_of(self.packed.shape[1], points.shape[1]) < points.shape[1] else None
        sums = self.others[:, 0], self.gradients, self.packed
        return Quadratics(ids, points, *sums, num_moving.clamp(min=1), self.others[:, 1], common)


def _derivatives(loss: Callable[[Tensor], Tensor], outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each row, its first derivative in the output, and its second one, which is held above zero."""
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
    jacobians: np.ndarray,
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
        second, first = derivatives[row, 2], derivatives[row, 4]
        place_of = 0
        for i in range(dim):
            gradients[slot, i] += first * jacobians[place, i]
            weighted, start = second * jacobians[place, i], i - i % block_dim
            for j in range(i - start + 1):
                packed[slot, place_of + j] += weighted * jacobians[place, start + j]
            place_of += i - start + 1
