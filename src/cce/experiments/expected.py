"""The order of methods to expect in a budget of bytes: what can be made for it, and what measurements say of that."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from cce.budget import FULL_SIZED
from cce.embeddings import METHODS
from cce.experiments.measured_order import MeasuredOrder, Series, Standing, read_measured_order
from cce.text import format_bytes, format_ratio, format_table
from cce.training import RunPlan, TrainConfig, plan_run, toml_value, words_of_learning

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from torch import Tensor


FLOAT_NBYTES = 4
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
HEADERS = ("options of `cce train`", "served", "better than", "BCE over full", "held in training", "sets", "runs")
NOTES = (
    "better than: in how many comparisons with the others, one for each set. held in training: at most, in times the",
    "bytes of the full tables, with Adam (--refit-nbytes: of a refit). FULL, QUANTIZED: the run to start from.",
)


@dataclass(frozen=True)
class ExpectedMethod:
    """A method that can be made for the budget: how to train it, what it serves, and how it stood elsewhere."""

    words: str  # options of `cce train`
    nbytes: int
    num_params: int
    standing: Standing


@dataclass(frozen=True)
class ExpectedOrder:
    """The methods that were measured with about so many bytes and can be made for the budget, the best first.

    ratio: times fewer bytes than the full tables.
    unmeasured: methods that can be made, of which nothing was measured near it; impossible: those that cannot be made.
    """

    nbytes: int
    ratio: float
    sets: tuple[str, ...]
    methods: tuple[ExpectedMethod, ...]
    unmeasured: tuple[str, ...]
    impossible: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """A table with its title, and what it does not say."""
        budget = f"{format_bytes(self.nbytes)}, {format_ratio(self.ratio)} fewer than full tables"
        lines = [f"The order to expect in {budget}, is not known: nothing was measured near it; `cce sweep` measures."]
        if self.methods:
            sets = f"{_number(len(self.sets))} sets ({', '.join(self.sets)})"
            lines = [
                f"The order to expect in {budget}.",
                f"It was measured on {sets}, not on your data: `cce sweep` measures that.",
                format_table(HEADERS, map(_row, self.methods)),
                *NOTES,
            ]
        lines += [f"Can be made, but not measured near it: {'; '.join(self.unmeasured)}."] if self.unmeasured else []
        lines += [f"Cannot be made so small: {'; '.join(self.impossible)}."] if self.impossible else []
        return "\n".join(lines)


def expected_order(
    vocabularies: Mapping[str, int],
    embedding_dim: int,
    *,
    nbytes: int,
    rule: str = "cap",
    counts: Mapping[str, Tensor] | None = None,
) -> ExpectedOrder:
    """The order to expect in `nbytes`, shared out by a rule of `Budget`; counts: see `plan_run`."""
    measured = read_measured_order()
    config = TrainConfig(data="", embedding_dim=embedding_dim, nbytes=nbytes, budget_rule=rule)
    whole = sum(vocabularies.values()) * embedding_dim * FLOAT_NBYTES
    tried = _Tried(config, vocabularies, counts)
    methods = tuple(tried.expected(measured, whole / nbytes))
    can_be_made = tried.others(measured, {each.standing.series for each in methods})
    return ExpectedOrder(
        nbytes,
        whole / nbytes,
        tuple(measured.points),
        methods,
        unmeasured=tuple(words for words, is_possible in can_be_made.items() if is_possible),
        impossible=tuple(words for words, is_possible in can_be_made.items() if not is_possible),
    )


@dataclass(frozen=True)
class _Tried:
    """Plans of other methods for the same budget."""

    config: TrainConfig
    vocabularies: Mapping[str, int]
    counts: Mapping[str, Tensor] | None

    def expected(self, measured: MeasuredOrder, ratio: float) -> Iterable[ExpectedMethod]:
        """The series that were measured at a ratio, if they can be made."""
        for standing in measured.standings(ratio):
            series = measured.series[standing.series]
            if (plan := self._plan(series)) is not None:
                yield ExpectedMethod(self._words(series), plan.tables.nbytes, plan.tables.num_params, standing)

    def others(self, measured: MeasuredOrder, names: Collection[str]) -> dict[str, bool]:
        """The series that are not among the names, and methods without a series: can they be made?"""
        methods = {each.method for each in measured.series.values()} | {*FULL_SIZED}
        rest = [each for name, each in measured.series.items() if name not in names]
        rest += [Series(name, name, {}, 0) for name in METHODS if name not in methods]
        return {each.name: self._plan(each) is not None for each in rest}

    def _plan(self, series: Series) -> RunPlan | None:
        """The tables of a series within the budget; None where it has none so small."""
        try:
            told = replace(self._config(series), refits=series.refits, code_bits=series.code_bits)
            return plan_run(told, self.vocabularies, self.counts)
        except ValueError:
            return None

    def _config(self, series: Series) -> TrainConfig:
        return replace(self.config, method=series.method, method_options=series.method_options)

    def _words(self, series: Series) -> str:
        """What to type for tables like those of a series."""
        given = {name: toml_value(value).replace(" ", "") for name, value in series.method_options.items()}
        pairs = " ".join(f"{name}={value}" for name, value in given.items())
        words = [f"--method {series.method}", f"--method-options {pairs}" if pairs else ""]
        words += words_of_learning(
            self._config(series), self.vocabularies, self.counts, series.code_bits, series.refits
        )
        return " ".join(filter(None, [*words, f"--start-from {series.source.upper()}" if series.source else ""]))


def _row(expected: ExpectedMethod) -> list[str]:
    standing = expected.standing
    least, most = (f"{number:.3g}×" for number in standing.training)
    return [
        expected.words,
        format_bytes(expected.nbytes),
        f"{standing.better} of {standing.comparisons}",
        f"{standing.excess:+.4f}",
        least if least == most else f"{least} to {most}",
        str(standing.num_sets),
        str(standing.num_runs),
    ]


def _number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)
