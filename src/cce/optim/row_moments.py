"""The second moment of each row in one byte, and the step of `PointerDescent` that divides by it.

Adam keeps a second moment for each value. Here it is a product, as in Adafactor (Shazeer and Stern, 2018): a factor
`f` for each frequency group and dimension, of mean 1, times a number `s` for each row, which follows its gradients:

    s ← β s + (1 - β) · mean over dimensions of G² / f,    step = lr · G / √(f · s / (1 - β^t))

`s` is followed at visits alone, as by `LazyAdam`, and divided by the weight of all steps, visited or not, as by Adam.
So the first step of an id that is seen late is `lr · √((1 - β^t) / (1 - β))`, up to 31 times `lr`, whatever the size of
its gradient, and later ones are smaller. One byte holds `s`: 64 powers of two in four parts each, rounded at random. A
second byte counts visits, so that codes are rounded by `spread` numbers.

Decay is divided by the same root, but that of a typical gradient at least: an id whose first gradient is next to
nothing would lose its row to it.

Plain torch is the definition, and compiled loops give the same bits.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from cce.optim import code_loops as loops
from cce.optim.code_moments import NEVER, follow_means, group_sizes
from cce.optim.code_steps import in_ranges
from cce.optim.fused import available
from cce.optim.stochastic_rounding import make_key, spread, uniform

if TYPE_CHECKING:
    from torch import Tensor

    from cce.embeddings import QuantizedEmbedding
    from cce.optim.code_moments import Moments, Settings
    from cce.optim.code_steps import RowSums

SHIFT, OFFSET = loops.SHIFT, loops.OFFSET
NUM_LEVELS = 256


class RowState(NamedTuple):
    """Two bytes of each row, which follow a batch in place."""

    levels: Tensor  # (rows), uint8: of the second moment; 0 where there was no gradient yet
    uses: Tensor  # (rows), uint8: visits, modulo 256


class Rates(NamedTuple):
    """What a step depends on for each group and dimension."""

    inverse: Tensor  # float64: 1 / f, in the unit of s
    gain: Tensor  # float32: codes that a gradient of 1 moves, where s is 1
    shrink: Tensor  # float32: decay, where s is 1
    least: Tensor  # float64, for each group: the s of a row after one typical gradient


class RowSettings(NamedTuple):
    """What a step depends on besides."""

    settings: Settings
    unit: float  # of s
    key: int  # of the table

    @property
    def keys(self) -> tuple[int, int]:
        """For levels, another one at every step, and for codes."""
        return make_key(self.key, 2 * self.settings.step), make_key(self.key, 0)


def unit_of(summed: RowSums) -> float:
    """A power of two near the mean square of the first gradients, in which second moments are held; 0 if all are 0."""
    mean = float(summed.squares.sum()) / max(1, summed.sums.numel())
    return 2.0 ** math.frexp(mean)[1] if mean > 0 else 0.0


def new_state(table: QuantizedEmbedding) -> RowState:
    """That of rows which were never seen."""
    rows = len(table.codes.values)
    return RowState(*(torch.zeros(rows, dtype=torch.uint8, device=table.scale.device) for _ in range(2)))


def decode_levels(levels: Tensor) -> Tensor:
    """The second moments, in float32, that levels stand for."""
    return torch.from_numpy(_VALUES).to(levels.device)[levels.long()]


def encode_levels(squares: Tensor, noise: Tensor) -> Tensor:
    """The levels of second moments in float32; each is rounded up if `noise`, in [0, 1), reaches beyond the next."""
    bits = squares.view(torch.int32).long() + (noise * (1 << SHIFT)).long()
    return ((bits >> SHIFT) - OFFSET).clamp_(1, NUM_LEVELS - 1).to(torch.uint8)


def step_rows(
    table: QuantizedEmbedding, moments: Moments, state: RowState, summed: RowSums, settings: RowSettings
) -> None:
    """Let moments follow a batch, and move the codes of its rows."""
    in_loops = available() and table.codes.values.is_cpu
    (_step_in_loops if in_loops else _step_plain)(table, moments, state, summed, settings)


def _step_plain(
    table: QuantizedEmbedding, moments: Moments, state: RowState, summed: RowSums, given: RowSettings
) -> None:
    settings, keys = given.settings, given.keys
    rates, beta = _rates_plain(table, moments, summed, given), settings.beta
    rows, groups, sums, _ = summed
    new, width = sums.double() * sums.double() * rates.inverse[groups], sums.shape[1]
    squares = decode_levels(state.levels[rows]).double() * beta + _sum_columns(new) / width * (1 - beta)
    state.uses[rows] += 1
    seen = squares > 0
    rows, groups, sums, squares = rows[seen], groups[seen], sums[seen], squares[seen]
    state.levels[rows] = encode_levels(squares.float(), uniform(keys[0], rows))
    speed = (settings.weight / squares).sqrt().float().unsqueeze(1)
    pull = (settings.weight / squares.clamp(min=rates.least[groups])).sqrt().float().unsqueeze(1)
    codes, largest = table.codes.values, table.codes.largest
    kept = 1 / (1 + rates.shrink[groups] * pull)
    moved = kept * (codes[rows].float() - rates.gain[groups] * speed * sums)
    places = rows.unsqueeze(1) * width + torch.arange(width, device=rows.device)
    noise = spread(keys[1], places, state.uses[rows].unsqueeze(1))
    codes[rows] = (moved + noise).floor_().clamp_(-largest, largest).to(codes.dtype)


def _rates_plain(table: QuantizedEmbedding, moments: Moments, summed: RowSums, given: RowSettings) -> Rates:
    settings, unit = given.settings, given.unit
    follow_means(table, moments, summed, settings.beta)
    visits = (moments.visits.double() / settings.weight).clamp(min=NEVER)
    squares = moments.squares.double()
    mean = _sum_columns(squares).unsqueeze(1) / squares.shape[1]
    seen, squares = squares > 0, torch.where(squares > 0, squares / mean * unit, 0.0)
    root, lr = squares.sqrt() + settings.eps, settings.lr
    return Rates(
        torch.where(seen, 1 / squares, 0.0),
        torch.where(seen, lr / (root * table.scale.double()), 0.0).float(),
        torch.where(seen, lr * settings.weight_decay / (visits * root), 0.0).float(),
        (mean / settings.weight / visits / unit * (1 - settings.beta)).squeeze(1),
    )


def _sum_columns(values: Tensor) -> Tensor:
    """In the order of loops, which rounding depends on."""
    total = values.new_zeros(len(values))
    for column in values.unbind(1):
        total += column
    return total


def _step_in_loops(
    table: QuantizedEmbedding, moments: Moments, state: RowState, summed: RowSums, given: RowSettings
) -> None:
    settings = given.settings
    shape = moments.squares.shape
    rates = np.empty(shape), np.empty(shape, np.float32), np.empty(shape, np.float32), np.empty(len(moments.squares))
    loops.follow_rates(
        (moments.squares.numpy(), moments.visits.numpy()),
        (summed.squares.numpy(), summed.groups.numpy(), group_sizes(table), table.scale.detach().double().numpy()),
        (settings.lr, settings.weight_decay, settings.beta, settings.eps, settings.weight),
        given.unit,
        rates,
    )
    step = partial(
        loops.move_rows,
        table.codes.values.numpy(),
        (summed.rows.numpy(), summed.groups.numpy(), summed.sums.numpy()),
        rates,
        (state.levels.numpy(), state.uses.numpy()),
        _VALUES,
        (settings.beta, settings.weight),
        (np.uint64(given.keys[0] % 2**64), np.uint64(given.keys[1] % 2**64)),
        np.float32(table.codes.largest),
    )
    in_ranges(step, *summed.sums.shape)


_VALUES = ((np.arange(NUM_LEVELS, dtype=np.int32) + OFFSET) << SHIFT).view(np.float32)
_VALUES[0] = 0
