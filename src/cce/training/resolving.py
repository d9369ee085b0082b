"""`resolve`: every choice that the options of a run leave open, made in one place; and `plan_run`: the tables that it
makes, before there are any, which `cce plan` shows and a sweep counts.

What is decided is printed at the start of a run, and written to its record and its checkpoints. Nothing else asks which
options were given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from cce.budget import FULL, FULL_SIZED, MEASURES, PAPER_METHOD
from cce.checks import check_choice
from cce.collection import plan_tables
from cce.compression import Option, allocate, least_nbytes, shapes_within
from cce.data import PreparedData
from cce.embeddings import METHODS, Clusterable, TrainingDefaults, paper_schedule
from cce.footprint import Footprint, Footprints
from cce.training.config import AUTO, NEVER, TrainConfig
from cce.training.model import table_arguments

REFITTED_TABLES = 4  # at most, without being asked, unless there are rows enough
ROWS_PER_ID = 4  # of ids with pointers, that are enough
REFITTED_VALUES = 1 << 26  # of vectors, that are refitted without being asked: 4 million ids of 16
MANY_STEPS = 2**62
TOLERANCE = 0.0005  # of the validation loss, that pointers may lose against int8 rows


@dataclass(frozen=True)
class DataSizes:
    """What `resolve` needs to know of a data set; `counts` tells how often ids of a feature occur, if known."""

    vocabularies: Mapping[str, int]
    num_rows: int = 0
    counts: Callable[[str], Tensor] | None = None

    @classmethod
    def of(cls, data: PreparedData) -> DataSizes:
        return cls(data.schema.vocabulary_sizes, data.num_rows("train"), lambda name: count_ids(data, name))


def count_ids(data: PreparedData, feature: str) -> Tensor:
    """How often each id of a feature occurs in the training rows; never for id 0, as unseen values share no row."""
    counts = torch.from_numpy(data.count_ids("train", feature))
    counts[0] = 0
    return counts


@dataclass(frozen=True)
class ResolvedConfig(TrainConfig):
    """The options of a run with everything decided. Nothing is None except the limits that do not apply.

    bits: of pointers, at most; 0 for no limit. cluster_at: after how many epochs; [] for never.
    refits: rounds, at most. max_steps: of all epochs.
    logger, start_from: "" for none. min_count: 0 if all ids have rows.
    """

    min_count: int = 0
    bits: float = 0.0
    tolerance: float = TOLERANCE
    start_from: str = ""
    max_steps: int = MANY_STEPS
    cluster_at: list[float] = field(default_factory=list)
    refits: int = 0
    logger: str = ""
    threads: int = 1
    steps_per_epoch: int = 1
    trains_as_rows: bool = False  # tables are int8 rows until the end of training
    table_options: dict[str, dict[str, Any]] = field(default_factory=dict)  # by method: arguments of its class
    is_limited: bool = False  # refits take no longer than training did, or a few seconds
    refits_because: str = "they were asked for"

    def __post_init__(self) -> None:
        self.check_types()
        missing = [each.name for each in fields(self) if getattr(self, each.name) is None]
        if left := [name for name in missing if name not in MEASURES]:
            raise TypeError(f"{', '.join(left)} must be resolved, got None.")

    def decided(self, given: TrainConfig) -> dict[str, Any]:
        """What the given options left open, by name."""
        shown = {each.name: getattr(self, each.name) for each in fields(given)}
        return {
            name: value
            for name, value in shown.items()
            if value and value != MANY_STEPS and getattr(given, name) != value
        }


def resolve(config: TrainConfig, data: PreparedData | DataSizes) -> ResolvedConfig:
    """Decide everything that `config` leaves open, for a data set or for sizes of one."""
    sizes = data if isinstance(data, DataSizes) else DataSizes.of(data)
    check_choice("method", config.method, METHODS)
    defaults = METHODS[config.method].training_defaults()
    _check_method(config, defaults)
    if config.stream and defaults.trains_as_rows and not config.budget.is_full and any(sizes.vocabularies.values()):
        raise ValueError(
            f"a budget of method {config.method!r} in a stream bounds rows of open ids: use prepare --open."
        )
    steps_per_epoch = max(1, -(-sizes.num_rows // config.batch_size))
    all_steps = config.epochs * steps_per_epoch if sizes.num_rows and not config.stream else MANY_STEPS
    values = {each.name: getattr(config, each.name) for each in fields(config)} | {
        "min_count": config.min_count or defaults.min_count or 0,
        "cap": _cap(config, defaults),
        "bits": config.bits or 0.0,
        "tolerance": TOLERANCE * defaults.trains_as_rows if config.tolerance is None else config.tolerance,
        "max_steps": min(all_steps, config.max_steps or MANY_STEPS),
        "steps_per_epoch": steps_per_epoch,
        "cluster_at": _cluster_at(config, defaults),
        "metrics": list(dict.fromkeys([*config.metrics, *(["calibration"] if config.stream else [])])),
        "test": config.test and not config.stream,
        "trains_as_rows": defaults.trains_as_rows,
        "table_options": _table_options(config),
        "threads": config.threads or torch.get_num_threads(),
        **{name: getattr(config, name) or "" for name in ("start_from", "logger")},
    }
    rounds, why = _refits(config, defaults, ResolvedConfig(**values | {"refits": 0}), sizes)
    values |= {"refits": rounds, "refits_because": why, "is_limited": config.refits == AUTO}
    return ResolvedConfig(**values)


def _check_method(config: TrainConfig, defaults: TrainingDefaults) -> None:
    """Reject options of int8 rows and refits for a method without them, and of clusterings for one that has them."""
    if not defaults.trains_as_rows:
        for name in ("refits", "min_count", "bits", "tolerance"):
            if getattr(config, name) not in (None, AUTO, 0):
                got = f"{name}={getattr(config, name)} with method {config.method!r}"
                raise ValueError(f"{name} must be left out where no table trains as int8 rows, got {got}.")
        if "row_lr" in config.optimizer_options:
            raise ValueError(f"optimizer_options row_lr goes with int8 rows, got it with method {config.method!r}.")
    elif config.cluster_at not in (AUTO, NEVER):
        raise ValueError(
            f"method {config.method!r} is clustered once, after its rows are trained: leave out cluster_at, or take "
            f"method {PAPER_METHOD!r}."
        )


def _cap(config: TrainConfig, defaults: TrainingDefaults) -> int | None:
    """The cap that the method would have, if no limit is given; none if its size is chosen after training."""
    if not config.budget.is_full or config.method in FULL_SIZED or defaults.trains_as_rows:
        return config.cap
    if defaults.num_rows is None:
        given = f"method {config.method!r}"
        raise ValueError(f"give one of cap, num_params, nbytes and compression with {given}, got none.")
    return defaults.num_rows * config.embedding_dim


def _cluster_at(config: TrainConfig, defaults: TrainingDefaults) -> list[float]:
    if isinstance(config.cluster_at, list):
        return config.cluster_at
    if config.cluster_at == NEVER or config.stream:
        return []
    if config.cluster_at == AUTO:
        return defaults.cluster_epochs(config.epochs) if issubclass(METHODS[config.method], Clusterable) else []
    return paper_schedule(config.cluster_at)


def _table_options(config: TrainConfig) -> dict[str, dict[str, Any]]:
    """Arguments of the classes of tables, by method."""
    start = {} if config.start_scale == AUTO else {"start_scale": config.start_scale}
    own = {**start, **config.method_options}
    own.pop("sparse", None)  # of all tables
    if config.min_count is not None:
        own["min_count"] = config.min_count
    return {FULL: start, config.method: own}


def _refits(
    config: TrainConfig, defaults: TrainingDefaults, resolved: ResolvedConfig, sizes: DataSizes
) -> tuple[int, str]:
    """Rounds of refits at most, and why.

    Without being asked: if few tables have pointers, or their ids have rows enough, and there are not so many ids that
    a round would read the rows again and again.
    """
    if config.refits != AUTO:
        return int(config.refits), "--refits says so"
    if not defaults.refits:
        return 0, f"method {config.method!r} has none"
    if config.stream or None in sizes.vocabularies.values():
        return 0, "a stream has none, and neither do ids without a bound by default"
    if config.start_from is not None or config.max_steps is not None:
        return 0, "a run that starts from another, or is cut short, has none by default"
    planned = plan_tables(sizes.vocabularies, config.embedding_dim, **table_arguments(vars(resolved))).tables
    learned = {table.name for table in planned if table.method == config.method}
    num_ids, num_rows = sum(sizes.vocabularies[name] for name in learned), 0
    if sizes.counts is not None:
        found = [((counts >= (resolved.min_count or 1)).sum(), counts.sum()) for counts in map(sizes.counts, learned)]
        num_ids, num_rows = sum(int(ids) for ids, _ in found), max((int(rows) for _, rows in found), default=0)
    if num_ids * config.embedding_dim > REFITTED_VALUES:
        return 0, f"{num_ids:,} ids with pointers are too many to refit by default"
    if len(learned) <= REFITTED_TABLES:
        return defaults.refits, f"at most {REFITTED_TABLES} tables have pointers"
    if ROWS_PER_ID * num_ids <= num_rows:
        return defaults.refits, f"ids with pointers have at least {ROWS_PER_ID} rows each"
    return 0, f"{len(learned)} tables have pointers, and fewer than {ROWS_PER_ID} rows for each of their ids"


# -- the tables of a run before there is one ---------------------------------------------------------------------------

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
        byte of pointers for each id, and may have from `least_nbytes` to `most_nbytes`.
    """

    tables: Footprints
    options: dict[str, Any]
    refits: int = 0
    least_nbytes: int = 0  # served, at least
    most_nbytes: int = 0  # and at most

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

    counts: how often each id occurs in training, by feature, as `count_ids` has it. Without them every id has a
        row.
    """
    if None in vocabularies.values():
        raise ValueError("plan needs the number of ids of each feature, got one that takes any 64-bit id.")
    resolved = resolve(config, DataSizes(vocabularies, counts=None if counts is None else counts.__getitem__))
    planned = plan_tables(vocabularies, config.embedding_dim, **table_arguments(vars(resolved))).tables
    rows = {
        table.name: table.num_embeddings if counts is None else int((counts[table.name] >= resolved.min_count).sum())
        for table in planned
        if resolved.trains_as_rows and table.method == resolved.method
    }
    tables = [_in_training(table, resolved, rows.get(table.name)) for table in planned]
    limits = (resolved.cap, resolved.num_params, resolved.compression)
    own = resolved.table_options[resolved.method]
    is_sized = any(limit is not None for limit in limits) or "num_rows" in own or "num_columns" in own
    options = {} if is_sized else _options([t for t in tables if t.name in rows], resolved, rows)
    fixed = sum(int(t.num_embeddings * MAP_BITS / 8) if t.name in options else t.nbytes for t in tables)
    shapes = _choose(options, resolved, fixed)
    found = Footprints(
        tuple(_served(t, resolved, shapes.get(t.name, t.sizes), rows[t.name]) if t.name in rows else t for t in tables)
    )
    is_open = bool(options) and resolved.nbytes is None and not resolved.bits
    least, most = (
        fixed + sum(which(each.nbytes for each in own) for own in options.values()) if is_open else found.nbytes
        for which in (min, max)
    )
    return RunPlan(found, own, resolved.refits, least, most)


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


def _options(tables: list[Footprint], config: ResolvedConfig, rows: Mapping[str, int]) -> dict[str, list[Option]]:
    """The shapes among which `finalize` will choose for each table.

    Errors of codebooks are not known before training: they are taken to fall as those of noise do, by the bits of an
    id, and a little slower with several columns.
    """
    dim, options = config.embedding_dim, {}
    is_limited = config.nbytes is not None or bool(config.bits)
    for table in tables:
        num_rows = rows[table.name]
        nbytes = (num_rows + 1) * (dim + ROW_STATE_NBYTES)
        shapes = shapes_within(nbytes, num_rows, dim, VALUE_NBYTES, is_limited=is_limited)
        shapes = [shape for shape in shapes if shape.bits <= (config.bits or shape.bits)] or shapes[:1]
        errors = [num_rows * shape.num_columns**0.1 * 4 ** (-shape.bits / dim) for shape in shapes]
        options[table.name] = [
            Option(shape, shape.nbytes(num_rows, dim, VALUE_NBYTES), error)
            for shape, error in zip(shapes, errors, strict=True)
        ]
    return options


def _choose(options: Mapping[str, list[Option]], config: ResolvedConfig, fixed: int) -> dict[str, dict[str, int]]:
    """Arguments that make the codebooks: within the bytes or bits that are given, or a byte an id.

    fixed: bytes of all that is not in the options.
    """
    limit = MANY_STEPS
    if config.nbytes is not None:
        limit, least = config.nbytes - fixed, least_nbytes(options)
        if options and limit < least:
            raise ValueError(f"nbytes must be at least {least + fixed} for these tables, got {config.nbytes}.")
    elif not config.bits:
        options = {name: [o for o in own if o.shape.bits <= ONE_BYTE] or own[:1] for name, own in options.items()}
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
