"""`finalize`: tables that have trained as int8 rows become pointers and codebooks, all or none, in place.

One training gives every size. `finalize` fits codebooks of several shapes to each table, measures how far they are from
the rows, weighted by how often ids occur, and chooses shapes for all tables together: for a number of bytes, for a
number of bits per id, or the smallest that validation cannot tell from the rows.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from cce.checks import check_choice, check_function, check_number, check_range, check_type
from cce.compression.sizes import Option, Shape, allocate, least_nbytes, shapes_within
from cce.distributed import broadcast, current_ranks, sum_over_ranks
from cce.embeddings import POINTS_PER_ROW, CCEEmbedding, Codebooks, Compact, piece_shape
from cce.indexing import make_generator
from cce.signals import uninterrupted
from cce.text import format_bytes, format_table

Validate = Callable[[], float] | Callable[[nn.Module], float]
TOLERANCE = 0.0005  # of a validation loss
FLAT = 0.01  # share of the variance that may be lost where nothing validates
SHARDED_SAMPLE = 1 << 18  # rows of a sharded table that codebooks are fitted to
STEP = 2**0.5  # from one size of the curve to the next
BETWEEN = 2  # further sizes that are tried between the last one that is good and the first one that is not
PROBED, MOST_PROBES = 0.99, 16  # tables are probed from the largest on, until they hold this share of the bytes
PROBED_AT = (1 / 8, 1 / 3, 1.0)  # of a table's variance is lost in its probe; more, if that is not to be seen
POWER = 1.5  # of the error, with which the loss of a model grows
LEAST = 1 / 100  # of the tolerance: what a probe is taken to cost at least


@dataclass(frozen=True)
class FinalizedTable:
    """What became of one table."""

    name: str
    num_ids: int  # with a row
    before: int  # bytes
    after: int  # bytes
    distortion: float  # mean squared error of a value, weighted by how often ids occurred
    shape: Shape


@dataclass(frozen=True)
class Size:
    """Tables of one size."""

    nbytes: int  # served
    bits: float  # of pointers, for each id with a row
    distortion: float  # squared error as a share of the variance of vectors, weighted by how often ids occur
    shapes: Mapping[str, Shape]
    loss: float | None = None  # by `validate`


@dataclass(frozen=True)
class Finalized:
    """What became of the tables of a model, and what could have."""

    tables: tuple[FinalizedTable, ...]
    curve: tuple[Size, ...] = ()  # from the smallest to the largest size
    knee: Size | None = None  # the smallest size of the curve that is as good as the rows
    chosen: Size | None = None
    loss_before: float | None = None  # of the int8 rows, by `validate`

    @property
    def before(self) -> int:
        """Bytes of these tables as int8 rows."""
        return sum(table.before for table in self.tables)

    @property
    def nbytes(self) -> int:
        """Bytes of these tables now."""
        return sum(table.after for table in self.tables)

    def __str__(self) -> str:
        """The curve, and a table."""
        if not self.tables:
            return "no table trains as int8 rows: nothing to finalize"
        lines = [
            [
                table.name,
                f"{table.num_ids:,}",
                str(table.shape),
                *map(format_bytes, (table.before, table.after)),
                f"{table.distortion:.3g}",
            ]
            for table in self.tables
        ]
        lines.append(["in all", "", "", format_bytes(self.before), format_bytes(self.nbytes), ""])
        headers = ["table", "ids with a row", "columns × rows", "int8 rows", "compact", "squared error"]
        return "\n\n".join([*([self._curve_table()] if self.curve else []), format_table(headers, lines)])

    def _curve_table(self) -> str:
        lines = []
        for size in self.curve:
            marks = [name for name, each in (("knee", self.knee), ("chosen", self.chosen)) if each == size]
            loss = "" if size.loss is None else f"{size.loss:.4f}"
            row = [format_bytes(size.nbytes), f"{size.bits:.1f}", f"{size.distortion:.2%}", loss, ", ".join(marks)]
            lines.append(row)
        if self.loss_before is not None:
            lines.append([f"{format_bytes(self.before)}", "", "", f"{self.loss_before:.4f}", "int8 rows"])
        return format_table(["served", "bits per id", "variance lost", "validation", ""], lines)


@torch.no_grad()
def finalize(
    model: nn.Module,
    *,
    nbytes: int | None = None,
    bits: float | None = None,
    tolerance: float | None = None,
    validate: Validate | None = None,
    num_columns: int | None = None,
    num_rows: int | None = None,
    counts: Mapping[str, Tensor] | None = None,
    seed: int | None = None,
    curve: bool = False,
) -> Finalized:
    """Turn every table of int8 rows of `model` into pointers and codebooks, in place; all of them, or none.

    Rows are clustered as they are now: load the weights of the best epoch first. To try several sizes, keep a
    `state_dict` from before and load it again. Tables that are final already stay as they are. Parameters and their
    names are the same before and after; codebooks go on to train if the model does, and pointers stay.

    Without any size the tables become as small as they can without loss: by `validate`, or else where the error has
    flattened out.

    nbytes: at most this many bytes of all these tables together, as they are served.
    bits: at most this many bits of pointers for each id.
    validate: a loss of the model, or of its argument if it takes one, such as that of validation rows. It is called
        for each of the largest tables alone, which says how much the model minds its error, and for about seven sizes;
        on every process, whose losses are averaged.
    tolerance: how much more than the loss of the int8 rows is as good, by `validate`; .0005 by default.
    num_columns, num_rows: of the codebooks of all tables.
    counts: by name of a table, how often each id occurs, instead of the tables' own counts.
    curve: validate all sizes, not only those that the choice depends on.
    """
    check_type("model", model, nn.Module, "a torch.nn.Module")
    check_type("counts", counts, (Mapping, type(None)), "a dictionary by name of a table")
    _check_sizes(nbytes, bits, tolerance, validate, (num_columns, num_rows))
    tables = {name: table for name, table in model.named_modules() if isinstance(table, CCEEmbedding)}
    for name in counts or {}:
        check_choice("a name in counts", name, tables)
    tables = {name: table for name, table in tables.items() if not table.is_final}
    for table in tables.values():
        table.check_options(num_columns=num_columns, num_rows=num_rows)
        piece_shape(table.embedding_dim, num_columns)
    if not tables:
        return Finalized(())
    for name, table in tables.items():
        table.rows.name = f"table {name!r}" if name else table.rows.name
    given = Shape(num_columns or 0, num_rows or 0)
    sizing = _Sizing(tables, counts or {}, seed, given, bits, is_limited=nbytes is not None or bits is not None)
    trial = None if validate is None else _Trial(sizing, model, validate, TOLERANCE if tolerance is None else tolerance)
    if trial is not None:
        sizing.weigh(trial)
    sizes = sizing.curve(nbytes)
    if trial is not None and curve:
        sizes = [trial.scored(size) for size in sizes]
    knee = None
    if nbytes is None and bits is None:
        chosen = knee = _smallest(sizes, trial)
    else:
        chosen = [size for size in sizes if size.nbytes <= (nbytes or size.nbytes)][-1]
        chosen = chosen if trial is None else trial.scored(chosen)
        knee = _smallest(sizes, trial) if curve or trial is None else None
    if trial is not None:
        sizes = sorted(({size.nbytes: size for size in sizes} | trial.found).values(), key=lambda size: size.nbytes)
    return Finalized(sizing.apply(chosen), tuple(sizes), knee, chosen, None if trial is None else trial.loss_before)


class _Trial:
    """Losses of sizes by `validate`, each measured once."""

    def __init__(self, sizing: _Sizing, model: nn.Module, validate: Validate, tolerance: float) -> None:
        self.sizing, self.model, self.validate = sizing, model, validate
        self.found: dict[int, Size] = {}  # by their bytes
        self.loss_before, self.tolerance = mean_loss(model, validate), tolerance

    def scored(self, size: Size) -> Size:
        """The size with its loss."""
        if size.nbytes not in self.found:
            self.found[size.nbytes] = replace(size, loss=self.score(size.shapes))
        return self.found[size.nbytes]

    def score(self, shapes: Mapping[str, Shape]) -> float:
        """The loss of the model with these shapes of tables, which then have their rows again."""
        compact = self.sizing.encode(shapes)
        with ExitStack() as trials:
            for name in shapes:
                trials.enter_context(self.sizing.tables[name].trying(compact[name]))
            return mean_loss(self.model, self.validate)

    def between(self, bad: Size, good: Size) -> Size:
        """The smallest good size that is found between one that is not good and one that is."""
        for _ in range(BETWEEN):
            middle = self.sizing.size(round(math.sqrt(bad.nbytes * good.nbytes)))
            if middle.nbytes in (bad.nbytes, good.nbytes):
                break
            bad, good = (bad, middle) if self.is_good(middle) else (middle, good)
        return self.scored(good)

    def is_good(self, size: Size) -> bool:
        """Whether its loss is within the tolerance."""
        loss = self.scored(size).loss
        return loss is not None and loss <= self.loss_before + self.tolerance


def _smallest(sizes: Sequence[Size], trial: _Trial | None) -> Size:
    """The smallest size that is as good as the rows, by its loss or by the variance that is lost.

    Losses fall with bytes, up to noise: halving the interval finds a good size whose neighbour is not good, and sizes
    between these two come nearer. If no size is good, the best of those that were tried.
    """
    if trial is None:
        return next((size for size in sizes if size.distortion <= FLAT), sizes[-1])
    bad, good = -1, len(sizes)
    while good - bad > 1:
        middle = (bad + good) // 2
        bad, good = (bad, middle) if trial.is_good(sizes[middle]) else (middle, good)
    if good < len(sizes):
        return trial.between(sizes[bad], sizes[good]) if bad >= 0 else trial.scored(sizes[good])
    return min(trial.found.values(), key=lambda size: math.inf if size.loss is None else size.loss)


class _Sizing:
    """The sizes that tables may have. Rank 0 fits and encodes; all processes know the options, and choose alike."""

    def __init__(
        self,
        tables: Mapping[str, CCEEmbedding],
        counts: Mapping[str, Tensor],
        seed: int | None,
        given: Shape,
        bits: float | None,
        *,
        is_limited: bool,
    ) -> None:
        self.tables, self.counts, self.ranks = tables, counts, current_ranks()
        self.most_bits, self.is_limited = bits, is_limited
        self.seed = 0 if seed is None else seed
        self.codebooks: dict[tuple[str, Shape], Codebooks] = {}
        self.fixed_nbytes = sum(table.row_map.nbytes for table in tables.values())
        self.samples = {
            name: table.sampled_rows(self._sample_size(table, given), self.counts.get(name))
            for name, table in tables.items()
            if table.is_sharded
        }
        self.row_nbytes = {
            name: (self.samples[name].num_points + 1) * table.rows.width if table.is_sharded else table.rows.row_nbytes
            for name, table in tables.items()
        }
        found = self._agree(lambda: {name: self._options(name, given) for name in tables})
        self.variances = {name: variance for name, (_, variance, _) in found.items()}
        self.num_ids = {name: num_ids for name, (_, _, num_ids) in found.items()}
        self.options = {
            name: [Option(Shape(*shape), nbytes, error) for shape, nbytes, error in options]
            for name, (options, _, _) in found.items()
        }
        self.errors = {(name, each.shape): each.error for name, options in self.options.items() for each in options}

    def _options(self, name: str, given: Shape) -> tuple[list[tuple[Shape, int, float]], float, int]:
        """Shapes of a table with their bytes and errors, the error of one row for all ids, and how many these are."""
        table = self.tables[name]
        rows = self.samples.get(name) or table.trained_rows(self.counts.get(name))
        num_ids = table.num_embeddings if table.rows.trains_unseen else rows.num_points
        dim, itemsize = table.embedding_dim, table.anchor.itemsize
        shapes = self._given(table, given) or shapes_within(
            self.row_nbytes[name], num_ids, dim, itemsize, num_vectors=rows.num_points, is_limited=self.is_limited
        )
        if self.most_bits is not None:
            least = min(shape.bits for shape in shapes)
            shapes = [shape for shape in shapes if shape.bits <= self.most_bits]
            if not shapes:
                raise ValueError(f"bits must be at least {least} for {table.rows.name}, got {self.most_bits}.")
        total = rows.mass * dim
        options = []
        for shape in shapes:
            fitted = self.codebooks[name, shape] = rows.fit(*shape, generator=make_generator(self.seed))
            options.append((shape, shape.nbytes(num_ids, dim, itemsize), fitted.distortion * total))
        return options, rows.variance * total, num_ids

    @staticmethod
    def _sample_size(table: CCEEmbedding, given: Shape) -> int:
        """Rows of a sharded table that codebooks are fitted to, at most."""
        return max(SHARDED_SAMPLE, POINTS_PER_ROW * max(given.num_rows, table.num_rows))

    def _given(self, table: CCEEmbedding, given: Shape) -> list[Shape]:
        """The shape that was asked for, now or when the table was made; none if neither."""
        if not table.is_sized and not any(given):
            return []
        return [Shape(given.num_columns or table.num_columns, given.num_rows or table.num_rows)]

    def weigh(self, trial: _Trial) -> None:
        """Let options cost what the loss says instead of their error.

        How much a model minds the error of a table differs by a factor of ten and more between its tables. So each is
        made coarse alone and validated; the loss of its other shapes is taken to grow with a power of the error.
        """
        choices = [name for name, options in self.options.items() if len(options) > 1]
        if len(self.options) < 2 or not choices:
            return
        choices.sort(key=lambda name: -self.row_nbytes[name])
        left = sum(self.row_nbytes[name] for name in choices) * (1 - PROBED)
        prices: dict[str, float] = {}
        while choices and len(prices) < MOST_PROBES:
            if sum(self.row_nbytes[name] for name in choices) <= left:
                break
            name = choices.pop(0)
            prices[name] = self._price(name, trial)
        for name in self.options:
            price, variance = prices.get(name, max(prices.values())), self.variances[name] or 1.0
            self.options[name] = [
                each._replace(error=price * (each.error / variance) ** POWER) for each in self.options[name]
            ]

    def _price(self, name: str, trial: _Trial) -> float:
        """The loss by the power of the share of a table's variance, where the loss is just no noise any more."""
        variance, loss, probes = self.variances[name] or 1.0, 0.0, []
        for share in PROBED_AT:
            wanted = math.log(variance * share)
            probes.append(min(self.options[name], key=lambda each: abs(math.log(each.error or 1e-30) - wanted)))
            if probes[-1] not in probes[:-1]:
                loss = trial.score({name: probes[-1].shape}) - trial.loss_before
            if loss > trial.tolerance:
                break
        return float(max(loss, trial.tolerance * LEAST, 1e-9) / (probes[-1].error / variance or 1.0) ** POWER)

    def curve(self, nbytes: int | None) -> list[Size]:
        """Sizes from the smallest to the largest, each about 1.4 times the one before, with that of this many bytes."""
        least = least_nbytes(self.options)
        most = sum(max(option.nbytes for option in options) for options in self.options.values())
        budgets = [most, *(int(least * STEP**step) for step in range(math.ceil(math.log(most / least, STEP))))]
        budgets = [each + self.fixed_nbytes for each in budgets]
        if nbytes is not None and nbytes < least + self.fixed_nbytes:
            raise ValueError(f"nbytes must be at least {least + self.fixed_nbytes} for these tables, got {nbytes}.")
        if nbytes is not None:
            budgets.append(nbytes)
        sizes = {(size := self.size(budget)).nbytes: size for budget in budgets}
        return [sizes[each] for each in sorted(sizes)]

    def size(self, nbytes: int) -> Size:
        """The best size of at most this many bytes."""
        chosen = allocate(self.options, nbytes - self.fixed_nbytes)
        served = sum(option.nbytes for option in chosen.values()) + self.fixed_nbytes
        error = sum(self.errors[name, option.shape] for name, option in chosen.items())
        bits = sum(self.num_ids[name] * option.shape.bits for name, option in chosen.items())
        shapes = {name: option.shape for name, option in chosen.items()}
        return Size(served, bits / sum(self.num_ids.values()), error / (sum(self.variances.values()) or 1.0), shapes)

    def apply(self, size: Size) -> tuple[FinalizedTable, ...]:
        """Let all tables have their compact form."""
        compact = self.encode(size.shapes)
        report = []
        with uninterrupted():
            for name, table in self.tables.items():
                shape, distortion, sizes = size.shapes[name], compact[name].distortion, [table.nbytes]
                sizes.append(table.rows.num_rows - 1)
                table.become(compact[name])
                sizes.append(table.nbytes)
                if table.is_sharded:
                    sizes = sum_over_ranks(torch.tensor(sizes), self.ranks).tolist()
                    distortion = self.codebooks[name, shape].distortion
                before, num_ids, after = sizes
                entry = FinalizedTable(name, num_ids, before, after, distortion, shape)
                report.append(entry)
        return tuple(report)

    def encode(self, shapes: Mapping[str, Shape]) -> dict[str, Compact]:
        """The compact form of tables, equal on all processes."""

        def encode(name: str) -> Compact:
            table = self.tables[name]
            return table.encode(table.trained_rows(self.counts.get(name)), self.codebooks[name, shapes[name]])

        if self.ranks.world_size == 1:
            return {name: encode(name) for name in shapes}
        whole, shared = ([name for name in shapes if (name in self.samples) == is_so] for is_so in (False, True))
        states = self._agree(lambda: {name: encode(name).state() for name in whole})
        books = self._agree(lambda: {name: vars(self.codebooks[name, shapes[name]]) for name in shared})
        self.codebooks |= {(name, shapes[name]): Codebooks(**values) for name, values in books.items()}
        return {name: Compact.of(states[name]) if name in states else encode(name) for name in shapes}

    def _agree(self, compute: Callable[[], Any]) -> Any:
        """What rank 0 computes; if it fails there, all ranks fail, and none waits."""
        value, failed = None, None
        if self.ranks.is_main:
            try:
                value = compute()
            except Exception as error:  # noqa: BLE001  # raised below, after the others know
                failed = error
        problem = "" if failed is None else str(failed) or type(failed).__name__
        value, problem = broadcast((value, problem), self.ranks)
        if failed is not None:
            raise failed
        if problem:
            raise ValueError(problem)
        return value


def mean_loss(model: nn.Module, validate: Validate) -> float:
    """The loss by `validate`, the mean of all processes; if it fails on one, all fail."""
    ranks = current_ranks()
    takes_model = any(
        each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        for each in inspect.signature(validate).parameters.values()
    )
    loss = torch.full((1,), math.nan, dtype=torch.float64)
    try:
        with torch.enable_grad():
            loss[0] = float(validate(model) if takes_model else validate())  # type: ignore[call-arg]
    finally:  # the others wait for this process, even if it fails
        mean = float(sum_over_ranks(loss, ranks)) / ranks.world_size
    if not math.isfinite(mean):
        raise ValueError(f"validate must return a finite loss on every process, got {mean}.")
    return mean


def _check_sizes(
    nbytes: int | None,
    bits: float | None,
    tolerance: float | None,
    validate: Validate | None,
    shape: tuple[int | None, int | None],
) -> None:
    """Reject sizes that contradict each other."""
    has_shape = any(each is not None for each in shape)
    given = {"nbytes": nbytes, "bits": bits, "tolerance": tolerance, "num_columns or num_rows": has_shape or None}
    several = [name for name, value in given.items() if value is not None]
    if len(several) > 1:
        raise ValueError(
            f"give one of nbytes, bits, tolerance and num_columns with num_rows, got {' and '.join(several)}."
        )
    if nbytes is not None:
        check_range("nbytes", nbytes, 1, 2**63)
    if bits is not None:
        check_number("bits", bits)
    if tolerance is not None:
        check_number("tolerance", tolerance)
        if validate is None:
            raise ValueError(f"tolerance goes with validate, got tolerance={tolerance} alone.")
    check_function("validate", validate, "a loss")
