"""Two budgets compared seed by seed, in words: how often one is better, by how much, and what so few seeds can say.

Runs of one seed share the order of the rows and the start of the network, so differences within a seed scatter less
than scores do. Student's t gives an interval of their mean. The signs alone are the other witness: of n seeds without
any true difference, all n agree once in 2^(n-1) tries, which is once in four for three seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from cce_lab.report.factors import half_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cce_lab.report.groups import Budget, Group

SIGNS_SUFFICE = 6  # seeds: if all agree, chance does so once in 32 tries, below one in twenty


@dataclass(frozen=True)
class Comparison:
    """`first` against `second`, by what `first` gains in each seed that both have; more is better."""

    first: str
    second: str
    gains: tuple[float, ...]

    @property
    def num_better(self) -> int:
        """Seeds in which the first is better."""
        return sum(gain > 0 for gain in self.gains)

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean gain, by Student's t; None with one seed."""
        if len(self.gains) < 2:
            return None
        mean = fmean(self.gains)
        half = half_width(list(self.gains), mean)
        return mean - half, mean + half

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)

    def __str__(self) -> str:
        mean, num = fmean(self.gains), len(self.gains)
        word = "better" if mean > 0 else "worse"
        count = self.num_better if mean > 0 else sum(gain < 0 for gain in self.gains)
        text = f"{self.first} is {word} than {self.second} in {count} of {num} seed{'' if num == 1 else 's'}"
        if self.interval is None:
            return f"{text}, difference {abs(mean):.4f}; one seed says nothing of chance."
        return f"{text}, mean difference {abs(mean):.4f} ± {stdev(self.gains):.4f}; {self._verdict()}."

    def _verdict(self) -> str:
        if not self.is_clear:
            return "the 95 % interval of the mean includes zero, so it may be chance"
        low, high = sorted(abs(end) for end in self.interval or ())
        return f"95 % interval of the mean {low:.4f} to {high:.4f}"


def meaning(found: Sequence[Comparison]) -> str:
    """What the sentences rest on, and what so few seeds cannot say."""
    fewest = min((len(each.gains) for each in found if len(each.gains) > 1), default=0)
    if not fewest:
        return ""
    text = "± is the standard deviation, and intervals are Student's t, of differences between runs of the same seed."
    if fewest >= SIGNS_SUFFICE:
        return text
    return f"{text} {fewest} seeds are few: without a true difference all agree once in {2 ** (fewest - 1)} tries."


def compare(group: Group, first: Budget, second: Budget) -> Comparison | None:
    """What `first` gains over `second` in each seed, by the leading metric; None without a seed that both have."""
    name, loss = group.leading.name, group.leading.loss
    own, other = first.by_seed(name), second.by_seed(name)
    gains = [loss(other[seed]) - loss(score) for seed, score in own.items() if seed in other]
    finite = tuple(gain for gain in gains if math.isfinite(gain))
    return Comparison(_words(first), _words(second), finite) if finite else None


def comparisons(group: Group) -> list[Comparison]:
    """The best budget of each series against the full table; at each budget, the best series against the next best.

    None where no budget has two seeds.
    """
    if not any(len(budget.records) > 1 for budget in group.budgets):
        return []
    found = []
    if (full := group.baseline) is not None:
        best = [_by_score(group, budgets)[0] for name, budgets in group.series.items() if name != group.full_series]
        found += [compare(group, budget, full) for budget in best]
    by_label: dict[str, list[Budget]] = {}
    for budget in group.budgets:
        by_label.setdefault(budget.label, []).append(budget)
    for rivals in by_label.values():
        if len(rivals) > 1:
            first, second, *_ = _by_score(group, rivals)
            found.append(compare(group, first, second))
    return [each for each in found if each is not None]


def _by_score(group: Group, budgets: list[Budget]) -> list[Budget]:
    """The best mean first."""
    return sorted(budgets, key=group.mean_loss)


def _words(budget: Budget) -> str:
    return budget.series if budget.label == budget.series else f"{budget.series} ({budget.label})"
