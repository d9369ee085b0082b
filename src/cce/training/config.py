"""The options of a training run: the same names on the command line, in a TOML file and in Python. No torch here.

`TrainConfig` is what somebody asks for; None and "auto" leave a choice to `resolve`, which makes all of them.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cce.budget import DEFAULT_METHOD, MEASURES, PAPER_METHOD, Budget
from cce.checks import START_SCALES, check_choice, check_flag, check_known, check_range, check_start_scale
from cce.evaluation import DEFAULT_METRICS, check_metrics, list_metrics
from cce.integrations import LOGGERS
from cce.plugins import check_plugins

LR_SCHEDULES = ("constant", "linear", "cosine")
MAY_BE_ZERO = ("seed", "refits")
AUTO, NEVER = "auto", "never"
STANDARD_INPUT = "-"  # as a part of a stream
CLUSTER_SCHEDULES = ("best-of-10-epochs", "one-epoch")  # of the paper
SPARSE_OPTIMIZERS = ("sgd", "adagrad")
PRESETS = ("tuned", "paper")
BY_PRESET: Any = None  # the default of an option whose value is the preset's
PRESET_OPTIONS: dict[str, dict[str, Any]] = {
    "tuned": {"optimizer": "adam", "lr": 0.006, "batch_size": 2048},
    "paper": {"optimizer": "sgd", "lr": 0.1, "batch_size": 128},
}
MAX_THREADS = 2**16
# of a run that is resumed
MAY_CHANGE = ("epochs", "max_steps", "shard", "device", "threads", "logger", "verify", "stream")
MAY_BE_CHOSEN_AGAIN = ("nbytes", "bits", "tolerance", "refits")  # by `cce finalize`, after training
MAY_MOVE = ("data", "start_from", "model", "plugins")  # files and folders, which may have another name
MORE = "more"  # the group of options without a flag of their own: `cce train --set NAME=VALUE`
GROUPS = {  # of options, as `cce train --help` shows them
    "model": "model",
    "tables": "embedding tables",
    "training": "training",
    "after": "pointers and refits",
    "scores": "validation and test",
    "machine": "machine and log",
}
KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "str": (str,),
    "float": (int, float),
    "str | float": (str, int, float),
}


def option(default: Any, group: str, text: str, *, choices: tuple[str, ...] = ()) -> Any:
    """A field with what `--help` says of it."""
    metadata = {"group": group, "help": text, "choices": choices}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def _by_preset(name: str) -> str:
    tuned, paper = (PRESET_OPTIONS[preset][name] for preset in PRESETS)
    return f"(default: {tuned}; {paper} with preset paper)"


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    By default a DLRM trains with Adam at 0.006 in batches of 2,048. `preset="paper"` is the paper's protocol: SGD at
    0.1 in batches of 128, method "cce-paper" in place of "cce", DLRM's start of full tables. Given options hold.
    """

    data: str  # folder of a data set made by `cce prepare`
    shuffle: bool = option(
        default=True, group=MORE, text="shuffle the rows of an epoch; without it they come as prepared, e.g. by time"
    )
    model: str = option("dlrm", "model", "dlrm, gmf, mlp, deepfm, dcnv2, or path/to/file.py:Name; see docs/models.md")
    model_options: dict[str, Any] = option(
        {}, "model", "further arguments of the model, such as bottom=[64,32] or concatenate=true"
    )
    embedding_dim: int = option(16, "model", "dimension of the vectors")
    method: str = option(DEFAULT_METHOD, "tables", "method of the tables: one of cce.embeddings.list_methods()")
    method_options: dict[str, Any] = option(
        {},
        "tables",
        "further arguments of the method, such as num_columns=8; sparse=true gives all tables sparse "
        "gradients, for sgd or adagrad",
    )
    min_count: int | None = option(
        None, "tables", f"training occurrences after which an id gets its own row (default for {DEFAULT_METHOD}: 1)"
    )
    cap: int | None = option(None, "tables", "maximum number of parameters of any one table")
    num_params: int | None = option(None, MORE, "parameters of all tables together, instead of a cap")
    nbytes: int | None = option(None, "tables", "maximum bytes of all tables together, pointers included, such as 1MB")
    compression: float | None = option(None, MORE, "how many times fewer parameters all tables have")
    bits: float | None = option(
        None, "tables", f"maximum bits of pointers per id of {DEFAULT_METHOD} tables when served, such as 8"
    )
    tolerance: float | None = option(
        None,
        "tables",
        f"loss of validation score that is allowed when {DEFAULT_METHOD} tables are finalized; the smallest size "
        "within it is chosen (default: 0.0005)",
    )
    start_from: str | None = option(None, "tables", "initialize from the best model of the run in this folder")
    start_scale: str | float = option(
        AUTO,
        MORE,
        "scale of initial vectors: uniform, dlrm, zero or a standard deviation; "
        "auto: dlrm for full tables and cce, else uniform",
    )
    preset: str = option(
        "tuned",
        "training",
        f"defaults of options that are not given; paper: {PAPER_METHOD}, sgd at 0.1, batches of 128, DLRM's initial "
        "vectors",
        choices=PRESETS,
    )
    stream: list[str] = option(
        [],
        "training",
        "train once, in this order, on prepared data sets and raw files like the data set (default: the first part), "
        "on folders of them, or on JSON lines from standard input (-); each part is scored before it is trained on",
    )
    part_rows: int = option(100_000, MORE, "rows of a part of the stream that comes from standard input")
    epochs: int = option(1, "training", "passes over the training rows; 0 with start_from")
    max_steps: int | None = option(None, "training", "stop after N optimizer steps")
    batch_size: int = option(
        BY_PRESET, "training", f"rows per step, over all processes together {_by_preset('batch_size')}"
    )
    optimizer: str = option(BY_PRESET, "training", f"adam, adamw, adagrad or sgd {_by_preset('optimizer')}")
    optimizer_options: dict[str, Any] = option(
        {}, "training", "further arguments of the optimizer, such as momentum=0.9, or row_lr=0.01 for int8 rows"
    )
    lr: float = option(BY_PRESET, "training", f"learning rate {_by_preset('lr')}")
    lr_schedule: str = option("constant", "training", "learning-rate schedule", choices=LR_SCHEDULES)
    weight_decay: float = option(0.0, "training", "weight decay of the tables (L2, as in torch.optim.Adam)")
    seed: int = option(0, "training", "random seed")
    cluster_at: str | list[float] = option(
        AUTO,
        "after",
        "when to cluster tables in training: epochs such as 0.25 0.5; best-of-10-epochs or one-epoch, the paper's "
        f"schedules; never; or auto, the method's own (never for {DEFAULT_METHOD})",
    )
    refits: int | str = option(
        AUTO,
        "after",
        "rounds of refits after training, or auto: while they improve validation, for no longer than training took, "
        "or 20 seconds",
    )
    validations_per_epoch: int = option(6, MORE, "how often the validation rows are scored")
    metrics: list[str] = option(
        list(DEFAULT_METRICS),
        "scores",
        f"metrics of validation and test rows: {', '.join(list_metrics())}; the first decides which checkpoint is best "
        f"and when to stop early (default: {' '.join(DEFAULT_METRICS)})",
    )
    early_stopping: bool = option(
        default=True, group=MORE, text="stop when an epoch's best validation is worse than the last one's"
    )
    test: bool = option(default=True, group=MORE, text="score the test rows with the best checkpoint at the end")
    logger: str | None = option(None, "machine", "also log to tensorboard, or to a logger that a plug-in registers")
    plugins: list[str] = option(
        [], MORE, "Python files or modules that were loaded with cce.plugins.load_plugins and that the run needs"
    )
    shard: bool = option(
        default=False,
        group="machine",
        text=f"each process of torchrun has the int8 rows of a share of the ids of {DEFAULT_METHOD} tables",
    )
    verify: bool = option(
        default=True, group="machine", text="check the data set against its checksums before training"
    )
    device: str = option(AUTO, "machine", "cpu, cuda, or auto, which stays on the CPU: nothing has run on a GPU yet")
    threads: int | None = option(None, MORE, "threads of torch on the CPU")

    def __post_init__(self) -> None:
        self._take_preset()
        self.check_types()
        check_plugins(self.plugins)
        self._check_numbers()
        self._check_optimizer()
        self._check_cluster_at()
        self._check_sizes()
        if self.start_from is not None and self.start_scale != AUTO:
            raise ValueError(f"start_scale does not go with start_from, got {self.start_scale!r}.")
        if self.logger is not None:
            check_choice("logger", self.logger, LOGGERS)
        self._check_stream()
        check_metrics(self.metrics)

    @property
    def default_folder(self) -> Path:
        """The folder of a run that is given none: `runs/DATA-METHOD`."""
        return Path("runs") / f"{Path(self.data).resolve().name}-{self.method}"

    @property
    def sparse(self) -> bool:
        return bool(self.method_options.get("sparse"))

    @property
    def budget(self) -> Budget:
        return Budget(self.cap, self.num_params, self.nbytes, self.compression)

    def _take_preset(self) -> None:
        check_choice("preset", self.preset, PRESETS)
        for name, value in PRESET_OPTIONS[self.preset].items():
            if getattr(self, name) is BY_PRESET:
                object.__setattr__(self, name, value)
        if self.preset == "paper" and self.method == DEFAULT_METHOD:
            object.__setattr__(self, "method", PAPER_METHOD)

    def check_types(self) -> None:
        """Reject options of a wrong type, or that are not among their choices."""
        for each in fields(self):
            kind, value = str(each.type).removesuffix(" | None"), getattr(self, each.name)
            may_be_none = kind != each.type
            if kind in KINDS and type(value) not in KINDS[kind] and not (may_be_none and value is None):
                raise TypeError(f"{each.name} must be a {each.type}, got {value!r}.")
            if kind.startswith("dict") and not isinstance(value, dict):
                raise TypeError(f"{each.name} must be a table of names and values, got {value!r}.")
            if each.metadata.get("choices"):
                check_choice(each.name, value, each.metadata["choices"])

    def _check_numbers(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            is_asked = value is not None and value != AUTO
            if each.type == "int" or (each.type in ("int | None", "int | str") and is_asked):
                may_be_zero = each.name in MAY_BE_ZERO or (each.name == "epochs" and self.start_from is not None)
                check_range(each.name, value, 0 if may_be_zero else 1, 2**63)
        if self.threads is not None:
            check_range("threads", self.threads, 1, MAX_THREADS)
        if self.compression is not None and not 1 <= self.compression < math.inf:
            raise ValueError(f"compression must be finite and at least 1, got {self.compression}.")
        check_start_scale("start_scale", self.start_scale, (AUTO, *START_SCALES))
        for name in ("lr", "weight_decay", "bits", "tolerance"):
            if not 0 <= (getattr(self, name) or 0) < math.inf:
                raise ValueError(f"{name} must be finite and at least 0, got {getattr(self, name)}.")

    def _check_sizes(self) -> None:
        _ = self.budget  # which rejects two limits
        sizes = {name: getattr(self, name) for name in (*MEASURES, "bits", "tolerance")}
        given = [f"{name}={value}" for name, value in sizes.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"give one of {', '.join(sizes)}, got {' and '.join(given)}.")

    def _check_optimizer(self) -> None:
        """Reject an optimizer that cannot train the tables of a run as it says."""
        check_flag("method_options sparse", self.method_options.get("sparse", False))
        if self.sparse and self.optimizer not in SPARSE_OPTIMIZERS:
            known = ", ".join(SPARSE_OPTIMIZERS)
            raise ValueError(f"method_options sparse=true goes with optimizer {known}; got {self.optimizer!r}.")
        if "weight_decay" in self.optimizer_options:
            got = self.optimizer_options["weight_decay"]
            raise ValueError(f"optimizer_options must leave out weight_decay: it is an option of the run, got {got!r}.")
        if self.weight_decay and self.sparse:
            raise ValueError(f"weight_decay must be 0 with sparse gradients, got {self.weight_decay}.")

    def _check_stream(self) -> None:
        """Reject a part that is given twice, and options of epochs and of what comes after them."""
        twice = sorted({path for path in self.stream if self.stream.count(path) > 1})
        if twice:
            raise ValueError(f"stream must name a part once, got {twice[0]!r} twice.")
        wrong = {"epochs": (1,), "lr_schedule": ("constant",), "cluster_at": (AUTO, NEVER), "refits": (AUTO, 0)}
        wrong |= {"bits": (None,), "tolerance": (None,)}
        for name, may_be in wrong.items():
            if self.stream and getattr(self, name) not in may_be:
                raise ValueError(f"{name} does not go with stream, which never ends, got {getattr(self, name)!r}.")

    def _check_cluster_at(self) -> None:
        if isinstance(self.cluster_at, str):
            check_choice("cluster_at", self.cluster_at, (AUTO, NEVER, *CLUSTER_SCHEDULES))
            return
        epochs = self.cluster_at if isinstance(self.cluster_at, list) else []
        if not epochs or not all(type(epoch) in (int, float) and 0 < epoch < math.inf for epoch in epochs):
            words = ", ".join((AUTO, NEVER, *CLUSTER_SCHEDULES))
            raise ValueError(
                f"cluster_at must be a list of numbers above 0, or one of {words}; got {self.cluster_at!r}."
            )


def read_toml(path: Path) -> dict[str, Any]:
    """The options of a TOML file, whose names are checked."""
    if not path.is_file():
        raise FileNotFoundError(f"config must name a file that is there, got {str(path)!r}.")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} must be TOML: {error}.") from error
    check_names(values, str(path))
    return values


def check_names(names: Iterable[str], where: str) -> None:
    """Reject unknown options and suggest the closest match."""
    known = [each.name for each in fields(TrainConfig)]
    for name in names:
        check_known(f"{where} has an option that is not known, {name!r}", name, known)


def make_config(values: Mapping[str, Any]) -> TrainConfig:
    """The configuration of these values; a wrong name is rejected, and a wrong type."""
    check_names(values, "the configuration")
    if "data" not in values and values.get("stream", [STANDARD_INPUT])[0] != STANDARD_INPUT:
        from cce.data import list_parts

        values = {**values, "data": str(next(iter(list_parts(values["stream"])), values["stream"][0]))}
    if "data" not in values:
        raise ValueError("data must be given: the folder of a data set made by `cce prepare`.")
    return TrainConfig(**values)


def parse_pairs(name: str, pairs: Iterable[str]) -> dict[str, Any]:
    """`["bottom=[64,32]", "start=k-means++"]` as a dictionary: values are TOML, or else words."""
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"{name} must have the form NAME=VALUE, got {pair!r}.")
        try:
            values[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[key] = text
    return values


def to_toml(config: TrainConfig) -> str:
    """What `read_toml` reads; what is None is left out."""
    values = {each.name: getattr(config, each.name) for each in fields(config)}
    plain = [f"{name} = {_toml_value(value)}" for name, value in values.items() if not isinstance(value, dict | None)]
    tables = [
        "\n".join([f"\n[{name}]", *(_pair(key, item) for key, item in value.items())])
        for name, value in values.items()
        if isinstance(value, dict) and value
    ]
    return "\n".join([*plain, *tables]) + "\n"


def _toml_value(value: Any) -> str:
    """A value as it is written in a file, or after NAME= on the command line."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(_pair(key, item) for key, item in value.items()) + "}"
    if isinstance(value, float):
        return repr(value)  # nan and inf are words of TOML's as well
    return json.dumps(value, ensure_ascii=False)  # for strings, numbers and booleans, JSON is valid TOML


def _pair(key: str, value: Any) -> str:
    """A key that is no plain word, such as the name of a feature may be, is set in quotes."""
    plain = re.fullmatch("[A-Za-z0-9_-]+", key)
    return f"{key if plain else json.dumps(key, ensure_ascii=False)} = {_toml_value(value)}"
