"""The tables of a run before there is one: what `cce plan` shows and a sweep counts. Nothing is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cce.collection import plan_tables
from cce.compression import Option, allocate, shapes_within
from cce.embeddings import METHODS
from cce.footprint import Footprint, Footprints
from cce.training.model import table_arguments
from cce.training.resolving import DataSizes, ResolvedConfig, resolve

if TYPE_CHECKING:
    from cce.training.config import TrainConfig

ROW_STATE_NBYTES = 3  # of an id with an int8 row, besides its values
MAP_BITS = 1.5  # of every id: whether it has a row, and where
STATE_VALUES = 35  # doubles of the optimizer for each value of a vector, however many int8 rows there are
OPTIMIZER_VALUES = {"adam": 2, "adamw": 2, "adagrad": 1, "sgd": 0}  # for each parameter
VALUE_NBYTES = 4
ONE_BYTE = 8  # bits of pointers of an id


@dataclass(frozen=True)
class RunPlan:
    """The tables of a run, and what makes them: arguments of the method's class, rounds of refits.

    tables: as they are served, with what they hold in training. Where the size is chosen after training, they have a
        byte of pointers for each id, and may have up to `most_nbytes`, as many as int8 rows.
    """

    tables: Footprints
    options: dict[str, Any]
    refits: int = 0
    most_nbytes: int = 0  # served, at most

    @property
    def training_nbytes(self) -> int:
        """Bytes in training: int8 rows or codebooks and pointers, gradients, and the state of the optimizer."""
        return sum(
            (table.codes_nbytes or table.nbytes) + table.gradient_nbytes + table.optimizer_nbytes
            for table in self.tables.tables
        )


def plan_run(
    config: TrainConfig, vocabularies: Mapping[str, int], counts: Mapping[str, Tensor] | None = None
) -> RunPlan:
    """The tables of a run on features of these vocabulary sizes, as it would make them.

    counts: how often each id of each feature occurs in training, as `count_ids` has it. Without them every id has a
        row.
    """
    resolved = resolve(config, DataSizes(vocabularies, counts=None if counts is None else lambda: counts))
    planned = plan_tables(vocabularies, config.embedding_dim, **table_arguments(vars(resolved))).tables
    rows = {
        table.name: table.num_embeddings if counts is None else int((counts[table.name] >= resolved.min_count).sum())
        for table in planned
        if resolved.trains_as_rows and table.method == resolved.method
    }
    tables = [_in_training(table, resolved, rows.get(table.name)) for table in planned]
    shapes = _shapes(tables, resolved, rows, counts)
    served = [_served(t, resolved, shapes[t.name], rows[t.name]) if t.name in rows else t for t in tables]
    is_open = shapes and resolved.nbytes is None and not resolved.bits and not _is_sized(resolved)
    most = sum((is_open and table.codes_nbytes) or table.nbytes for table in served)
    options = resolved.table_options[resolved.method]
    return RunPlan(Footprints(tuple(served)), options, resolved.refits, most)


def _is_sized(config: ResolvedConfig) -> bool:
    """Whether the codebooks of int8 rows have a size before training."""
    limits = (config.cap, config.num_params, config.compression)
    own = config.table_options[config.method]
    return any(limit is not None for limit in limits) or "num_rows" in own or "num_columns" in own


def _in_training(table: Footprint, config: ResolvedConfig, num_rows: int | None) -> Footprint:
    """A table with what it holds in training: `num_rows` int8 rows, if it has any, or parameters."""
    dim = table.embedding_dim
    if num_rows is None:
        nbytes = VALUE_NBYTES * table.num_params
        state = nbytes * OPTIMIZER_VALUES.get(config.optimizer, 2)
        return replace(table, gradient_nbytes=0 if config.sparse else nbytes, optimizer_nbytes=state)
    seen_bits = next(bits for bits in (0, 1, 2, 4, 8) if config.min_count <= 1 << bits or bits == 8)
    return replace(
        table,
        codes_nbytes=(num_rows + 1) * (dim + ROW_STATE_NBYTES) + int(table.num_embeddings * (MAP_BITS + seen_bits) / 8),
        gradient_nbytes=min(config.batch_size, num_rows) * (4 * dim + 3 * 8),
        optimizer_nbytes=8 * STATE_VALUES * (dim + 1),
    )


def _shapes(
    tables: list[Footprint], config: ResolvedConfig, rows: Mapping[str, int], counts: Mapping[str, Tensor] | None
) -> dict[str, dict[str, int]]:
    """Arguments that make the codebooks of `finalize`: of the options, within their bytes or bits, or a byte an id.

    Errors of codebooks are not known before training: they are taken to fall as those of noise do, by the bits of an
    id, and a little slower with several columns. The most frequent ids have rows of their own, and no error.
    """
    if _is_sized(config):
        return {table.name: table.sizes for table in tables if table.name in rows}
    dim, options = config.embedding_dim, {}
    most_bits = None if config.nbytes is not None else config.bits or ONE_BYTE
    for table in (table for table in tables if table.name in rows):
        num_rows = rows[table.name]
        shapes = shapes_within(table.codes_nbytes, num_rows, dim, VALUE_NBYTES, is_limited=True)
        shapes = [shape for shape in shapes if most_bits is None or shape.bits <= most_bits] or shapes[:1]
        masses = torch.ones(num_rows) if counts is None else counts[table.name].double()
        masses = masses.sort(descending=True).values.cumsum(0)
        shares = [1 - float(masses[min(shape.num_rows, len(masses)) - 1] / masses[-1]) for shape in shapes]
        errors = [
            share * shape.num_columns**0.1 * 4 ** (-shape.bits / dim)
            for share, shape in zip(shares, shapes, strict=True)
        ]
        options[table.name] = [
            Option(shape, shape.nbytes(num_rows, dim, VALUE_NBYTES), num_rows * error)
            for shape, error in zip(shapes, errors, strict=True)
        ]
    limit = sum(max(option.nbytes for option in own) for own in options.values())
    if config.nbytes is not None:
        others = (int(t.num_embeddings * MAP_BITS / 8) if t.name in rows else t.nbytes for t in tables)
        limit = config.nbytes - sum(others)
    return {name: option.shape._asdict() for name, option in allocate(options, limit).items()}


def _served(table: Footprint, config: ResolvedConfig, sizes: Mapping[str, int], num_rows: int) -> Footprint:
    """A table with codebooks of these sizes, and pointers of the ids that have rows."""
    kind = METHODS[table.method]
    options = kind.complete_options(config.table_options[table.method]) | dict(sizes)
    shapes = kind.shapes(table.num_embeddings, table.embedding_dim, options)
    return replace(
        table,
        num_params=shapes.num_params,
        codebook_nbytes=shapes.codebook_nbytes(VALUE_NBYTES),
        pointer_nbytes=replace(shapes, pointers=(num_rows, *shapes.pointers[1:])).pointer_nbytes,
        sizes=dict(sizes),
    )
