"""The first sentence about a group: who needs the fewest parameters to score as the full table, whoever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.report.compression_factor import Kind
from cce.report.groups import FULL

if TYPE_CHECKING:
    from cce.report.compression_factor import Factor
    from cce.report.groups import Group


def headline(group: Group) -> str:
    """The finding in a sentence or two."""
    if not group.budgets:
        return f"No run is finished yet; {len(group.live)} under way."
    if group.baseline_bce is None:
        return f"No full table among these runs, so compression factors cannot be told. {_best(group)}"
    factors = {name: group.factor(name, "params") for name in group.series if name != FULL}
    reached = sorted((name for name in factors if factors[name].is_reached), key=lambda name: -_value(factors[name]))
    if not factors:
        return f"Only the full table has been run: BCE {group.baseline_bce:.4f}."
    text = _reached(group, factors, reached) if reached else _closest(group, factors)
    return text if any(len(budget.records) > 1 for budget in group.budgets) else f"{text} One seed."


def _reached(group: Group, factors: dict[str, Factor], reached: list[str]) -> str:
    first, *others = reached
    nbytes = group.factor(first, "bytes")
    weight = f" ({nbytes} fewer bytes)" if nbytes.is_reached else ""
    text = f"{first} reaches the full table's BCE with {factors[first]} fewer params{weight}"
    if others:
        return f"{text}; next best, {others[0]}: {factors[others[0]]}.{_place_of_cce(factors, reached)}"
    rest = len(factors) - 1
    return f"{text}; none of the other {rest} does within the sizes tried." if rest > 1 else f"{text}."


def _place_of_cce(factors: dict[str, Factor], reached: list[str]) -> str:
    if "cce" not in factors or "cce" in reached[:2]:
        return ""
    return f" cce: {factors['cce']}."


def _closest(group: Group, factors: dict[str, Factor]) -> str:
    text = f"No method reaches the full table's BCE of {group.baseline_bce:.4f} within the sizes tried. {_best(group)}"
    guesses = {name: each for name, each in factors.items() if each.kind is Kind.EXTRAPOLATED}
    if not guesses:
        return text
    best = max(guesses, key=lambda name: _value(guesses[name]))
    return (
        f"{text} By extrapolation {best} would, at {str(guesses[best]).removesuffix(' (extrapolated)')} fewer params."
    )


def _best(group: Group) -> str:
    """The best score of what is not the full table."""
    scored = [(found.mean, each) for each in group.budgets if each.series != FULL and (found := each.over_seeds("bce"))]
    if not scored:
        return "None has a score."
    bce, budget = min(scored, key=lambda pair: pair[0])
    return f"Best: {budget.series}, {budget.label}, BCE {bce:.4f}."


def _value(factor: Factor) -> float:
    return factor.value or 0.0
