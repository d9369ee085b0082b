"""The options of a training run: the same names on the command line, in a TOML file and in Python. No torch here."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, fields
from typing import Any

from cce.budget import RULES, Budget
from cce.checks import check_choice, check_range
from cce.evaluation import DEFAULT_BEST_BY, DEFAULT_METRICS, check_best_by, check_metrics, list_metrics
from cce.training.half_precision import check_half

LR_SCHEDULES = ("constant", "linear", "cosine")
MAY_BE_ZERO = ("seed", "warmup_steps")
PRESETS = ("tuned", "paper")
PRECISIONS = ("float32", "bf16")
AUCS = ("exact", "streaming")
CODEBOOK_DTYPES = ("float32", "float16", "bfloat16")
MAX_THREADS = 2**16
SPARSE_OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad", "sparse_adam")
MAY_CHANGE = ("epochs", "max_steps", "device", "threads", "keep_last", "tensorboard")  # of a run that is resumed
MAY_MOVE = ("data", "start_from", "model")  # files and folders, which may have another name
SCHEDULES = (
    "auto",
    "none",
    "twice-an-epoch",
    "best-of-10-epochs",
    "one-epoch",
    "strategy-1",
    "strategy-2",
    "strategy-3",
)


def _about(text: str, *choices: str) -> dict[str, Any]:
    return {"help": text, "choices": choices}


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    The model and its training are the paper's by default: DLRM, plain SGD at 0.1, batches of 128. How cce learns is
    tuned (docs/results.md); `preset="paper"` gives the paper's columns, schedule and pointers.
    """

    data: str = field(metadata=_about("folder of a data set made by `cce prepare`"))
    model: str = field(default="dlrm", metadata=_about("dlrm, gmf, or path/to/file.py:Name"))
    model_options: dict[str, Any] = field(
        default_factory=dict, metadata=_about("further arguments of the model, such as bottom=[64,32]")
    )
    method: str = field(
        default="cce", metadata=_about("how tables that do not fit are made smaller: cce, hash, full, …")
    )
    method_options: dict[str, Any] = field(
        default_factory=dict, metadata=_about("further arguments of the method, such as num_columns=8")
    )
    preset: str = field(
        default="tuned",
        metadata=_about("how cce learns: tuned, as docs/results.md measures, or as in the paper", *PRESETS),
    )
    learned_min_count: int = field(
        default=5, metadata=_about("ids that training sees less often stay hashed: no pointer of theirs is learned")
    )
    num_learned: dict[str, int] = field(
        default_factory=dict,
        metadata=_about("how many ids of a feature have learned pointers, instead of learned_min_count"),
    )
    cap: int | None = field(default=None, metadata=_about("most parameters of any one table"))
    num_params: int | None = field(default=None, metadata=_about("parameters of all tables together, instead of a cap"))
    nbytes: int | None = field(
        default=None, metadata=_about("bytes of all tables together, pointers included, instead of a cap")
    )
    compression: float | None = field(
        default=None, metadata=_about("how many times fewer parameters all tables have, instead of a cap")
    )
    budget_rule: str = field(
        default="cap", metadata=_about("how a total is shared out among tables: see cce.Budget", *RULES)
    )
    start_from: str | None = field(
        default=None, metadata=_about("folder of a run whose best model this one starts as near to as it can")
    )
    embedding_dim: int = field(default=16, metadata=_about("dimension of the vectors"))
    unified: bool = field(
        default=False, metadata=_about("one table for all features; a cap is then that of this table")
    )
    codebook_dtype: str = field(
        default="float32",
        metadata=_about(
            "type in which tables are stored and trained; the model's networks get float32", *CODEBOOK_DTYPES
        ),
    )
    sparse: bool = field(
        default=False,
        metadata=_about("sparse gradients: for large tables, with sgd, rowwise_adagrad, adagrad or sparse_adam"),
    )
    epochs: int = field(default=1, metadata=_about("passes over the training rows; 0 with start_from"))
    batch_size: int = field(default=128, metadata=_about("rows of an optimizer step, over all processes together"))
    accumulate: int = field(default=1, metadata=_about("pieces that a batch is computed in, to save memory"))
    optimizer: str = field(
        default="sgd", metadata=_about("sgd, rowwise_adagrad, adam, adamw, adagrad, sparse_adam or any other of torch")
    )
    optimizer_options: dict[str, Any] = field(
        default_factory=dict, metadata=_about("further arguments of the optimizer, such as momentum=0.9")
    )
    lr: float = field(default=0.1, metadata=_about("learning rate"))
    lr_schedule: str = field(default="constant", metadata=_about("what becomes of it after the warm-up", *LR_SCHEDULES))
    warmup_steps: int = field(default=0, metadata=_about("steps in which the learning rate rises to its value"))
    weight_decay: float = field(default=0.0, metadata=_about("of the optimizer"))
    precision: str = field(
        default="float32", metadata=_about("of the computation: bf16 computes networks in half the bits", *PRECISIONS)
    )
    cluster_schedule: str = field(
        default="auto",
        metadata=_about("when tables are clustered; auto: twice-an-epoch, or one-epoch if there is one", *SCHEDULES),
    )
    cluster_every: int | None = field(
        default=None, metadata=_about("cluster every so many steps, instead of a schedule")
    )
    cluster_at_epochs: list[float] | None = field(
        default=None, metadata=_about("cluster after these numbers of epochs, such as 0.25 0.5, instead of a schedule")
    )
    cluster_times: int | None = field(default=None, metadata=_about("cluster so many times"))
    cluster_policy: str = field(
        default="transfer", metadata=_about("what becomes of the optimizer's state", "transfer", "reset", "keep")
    )
    validations_per_epoch: int = field(default=6, metadata=_about("how often the validation rows are scored"))
    metrics: list[str] = field(
        default_factory=lambda: list(DEFAULT_METRICS),
        metadata=_about(f"what validation and test rows are scored by: {', '.join(list_metrics())}"),
    )
    best_by: str = field(
        default=DEFAULT_BEST_BY, metadata=_about("metric that says which checkpoint is the best, and when to stop")
    )
    group_by: str | None = field(
        default=None, metadata=_about("feature that names the group or query of a row, for metrics by group")
    )
    early_stopping: bool = field(
        default=True, metadata=_about("stop when an epoch's best validation is worse than the last one's")
    )
    auc: str = field(default="exact", metadata=_about("streaming needs no memory for all scores of a split", *AUCS))
    evaluation_batch_size: int = field(default=16_384, metadata=_about("rows at a time when rows are scored"))
    test: bool = field(default=True, metadata=_about("score the test rows with the best checkpoint at the end"))
    max_steps: int | None = field(default=None, metadata=_about("stop after so many optimizer steps"))
    checkpoint_every: int | None = field(
        default=None, metadata=_about("steps between checkpoints, besides those at validations")
    )
    keep_last: int = field(default=2, metadata=_about("checkpoints that are kept, besides the best"))
    log_every: int = field(default=100, metadata=_about("steps between lines of the log"))
    tensorboard: bool = field(default=False, metadata=_about("write TensorBoard's files as well"))
    seed: int = field(default=0, metadata=_about("of everything random"))
    device: str = field(default="auto", metadata=_about("cpu, cuda, or auto: cuda where there is one"))
    threads: int | None = field(default=None, metadata=_about("of torch on the CPU"))

    def __post_init__(self) -> None:
        self._check_types()
        for name in ("model_options", "method_options", "optimizer_options", "num_learned"):
            if not isinstance(getattr(self, name), dict):
                raise TypeError(f"{name} must be a table of names and values, got {getattr(self, name)!r}.")
        for each in fields(self):
            if each.metadata["choices"]:
                check_choice(each.name, getattr(self, each.name), each.metadata["choices"])
        self._check_numbers()
        self._check_pairs()

    def _check_types(self) -> None:
        kinds: dict[str, tuple[type, ...]] = {"bool": (bool,), "str": (str,), "float": (int, float)}
        for each in fields(self):
            word, _, may_be_none = str(each.type).partition(" | ")
            value = getattr(self, each.name)
            if word in kinds and type(value) not in kinds[word] and not (may_be_none and value is None):
                raise TypeError(f"{each.name} must be a {each.type}, got {value!r}.")

    def _check_numbers(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type == "int" or (each.type == "int | None" and value is not None):
                may_be_zero = each.name in MAY_BE_ZERO or (each.name == "epochs" and self.start_from is not None)
                check_range(each.name, value, 0 if may_be_zero else 1, 2**63)
        if self.threads is not None:
            check_range("threads", self.threads, 1, MAX_THREADS)
        if self.compression is not None and not 1 <= self.compression < math.inf:
            raise ValueError(f"compression must be finite and at least 1, got {self.compression}.")
        for name, count in self.num_learned.items():
            check_range(f"num_learned of {name!r}", count, 0, 2**63)
        for name in ("lr", "weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}.")

    def _check_pairs(self) -> None:
        if self.budget.is_full and self.method != "full":
            raise ValueError(
                f"give one of cap, num_params, nbytes and compression with method {self.method!r}, got none."
            )
        if self.batch_size % self.accumulate:
            sizes = f"batch_size={self.batch_size} and accumulate={self.accumulate}"
            raise ValueError(f"batch_size must be a multiple of accumulate, got {sizes}.")
        if self.codebook_dtype == "float16":
            check_half(self.optimizer, self.optimizer_options, lr=self.lr)
        self._check_sparse()
        if "pointer_file" in self.method_options:
            got = self.method_options["pointer_file"]
            raise ValueError(f"method_options must leave out pointer_file: tables of a run share none, got {got!r}.")
        if self.preset == "paper" and self.learned_min_count not in (1, TrainConfig.learned_min_count):
            got = f"learned_min_count={self.learned_min_count}"
            raise ValueError(f"preset 'paper' learns pointers of all ids: leave out learned_min_count, got {got}.")
        check_metrics(self.metrics, group_by=self.group_by)
        check_best_by(self.best_by, self.metrics)
        self._check_when()

    def _check_sparse(self) -> None:
        if self.sparse and self.optimizer not in SPARSE_OPTIMIZERS:
            raise ValueError(
                f"sparse must have an optimizer of {', '.join(SPARSE_OPTIMIZERS)}; got {self.optimizer!r}."
            )
        decay = self.weight_decay or self.optimizer_options.get("weight_decay")
        if self.sparse and decay and self.optimizer != "rowwise_adagrad":
            raise ValueError(f"weight_decay must be 0 with sparse and optimizer {self.optimizer!r}, got {decay}.")
        if self.optimizer == "sparse_adam" and not self.sparse:
            raise ValueError("optimizer 'sparse_adam' must have sparse=True, got sparse=False.")

    def _check_when(self) -> None:
        """Check that when to cluster is given in one way."""
        ways = {"cluster_every": self.cluster_every, "cluster_at_epochs": self.cluster_at_epochs}
        given = [name for name, value in ways.items() if value is not None]
        given += [f"cluster_schedule={self.cluster_schedule!r}"] if self.cluster_schedule != "auto" else []
        if len(given) > 1:
            names = "cluster_every, cluster_at_epochs and cluster_schedule"
            raise ValueError(f"give one of {names}, got {' and '.join(given)}.")
        if self.cluster_at_epochs is None:
            return
        if self.cluster_times is not None:
            raise ValueError("cluster_times does not go with cluster_at_epochs, which lists all clusterings.")
        epochs = self.cluster_at_epochs if isinstance(self.cluster_at_epochs, list) else []
        if not epochs or not all(type(epoch) in (int, float) and 0 < epoch < math.inf for epoch in epochs):
            raise ValueError(f"cluster_at_epochs must be a list of numbers above 0, got {self.cluster_at_epochs!r}.")

    @property
    def budget(self) -> Budget:
        """What the tables may hold."""
        return Budget(
            *(self.cap, self.num_params, self.nbytes, self.compression, self.budget_rule),
            num_learned=self.num_learned or None,
        )

    def to_toml(self) -> str:
        """What `from_toml` reads; what is None is left out."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        plain = [f"{name} = {_toml(value)}" for name, value in values.items() if not isinstance(value, dict | None)]
        tables = [
            "\n".join([f"\n[{name}]", *(_pair(key, item) for key, item in value.items())])
            for name, value in values.items()
            if isinstance(value, dict) and value
        ]
        return "\n".join([*plain, *tables]) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(_pair(key, item) for key, item in value.items()) + "}"
    if isinstance(value, float):
        return repr(value)  # nan and inf are words of TOML's as well
    return json.dumps(value, ensure_ascii=False)  # for strings, numbers and booleans, JSON is valid TOML


def _pair(key: str, value: Any) -> str:
    """A key that is no plain word, such as the name of a feature may be, is set in quotes."""
    plain = re.fullmatch("[A-Za-z0-9_-]+", key)
    return f"{key if plain else json.dumps(key, ensure_ascii=False)} = {_toml(value)}"
