"""The options of a training run: the same names on the command line, in a TOML file and in Python. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cce.budget import DEFAULT_METHOD, PAPER_METHOD, RULES, Budget
from cce.checks import START_SCALES, check_choice, check_range, check_start_scale
from cce.evaluation import DEFAULT_BEST_BY, DEFAULT_METRICS, check_best_by, check_metrics, list_metrics
from cce.integrations import LOGGERS
from cce.plugins import check_plugins
from cce.training.learning_rules import check_learning
from cce.training.optimizer_rules import check_optimizer

NOT_METHOD_OPTIONS = {"pointer_file": "tables of a run share none"}
LR_SCHEDULES = ("constant", "linear", "cosine")
MAY_BE_ZERO = ("seed", "warmup_steps", "refits")
PRESETS = ("tuned", "paper")
BY_PRESET: Any = None  # the default of an option whose value is the preset's
PRESET_OPTIONS: dict[str, dict[str, Any]] = {
    "tuned": {"optimizer": "adam", "lr": 0.003, "batch_size": 2048},
    "paper": {"optimizer": "sgd", "lr": 0.1, "batch_size": 128},
}
NETWORKS = ("auto", "always", "never")
PRECISIONS = ("float32", "bf16")
AUCS = ("exact", "streaming")
CODEBOOK_DTYPES = ("float32", "float16", "bfloat16")
MAX_THREADS = 2**16
MAY_CHANGE = ("epochs", "max_steps", "device", "threads", "keep_last", "logger", "verify")  # of a run that is resumed
MAY_MOVE = ("data", "start_from", "model", "plugins")  # files and folders, which may have another name
SCHEDULES = ("auto", "none", "best-of-10-epochs", "one-epoch", "strategy-1", "strategy-2", "strategy-3")


def _about(text: str, *choices: str) -> dict[str, Any]:
    return {"help": text, "choices": choices}


def _by_preset(name: str) -> str:
    tuned, paper = (PRESET_OPTIONS[preset][name] for preset in PRESETS)
    return f"(default: {tuned}; {paper} with preset paper)"


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    By default a DLRM trains with Adam at 0.003 in batches of 2,048. `preset="paper"` is the paper's protocol: SGD at
    0.1 in batches of 128, method "cce-paper" in place of "cce", DLRM's start of full tables. Given options hold.
    """

    data: str = field(metadata=_about("folder of a data set made by `cce prepare`"))
    verify: bool = field(
        default=True, metadata=_about("compare the data set with its checksums first: about a second a GB")
    )
    model: str = field(
        default="dlrm",
        metadata=_about("dlrm, gmf, mlp, deepfm, dcnv2, finalmlp, or path/to/file.py:Name; see docs/models.md"),
    )
    model_options: dict[str, Any] = field(
        default_factory=dict,
        metadata=_about("further arguments of the model, such as bottom=[64,32] or concatenate=true"),
    )
    method: str = field(
        default=DEFAULT_METHOD,
        metadata=_about("how tables that do not fit are made smaller: a method of cce.list_methods()"),
    )
    method_options: dict[str, Any] = field(
        default_factory=dict, metadata=_about("further arguments of the method, such as num_columns=8")
    )
    preset: str = field(
        default="tuned",
        metadata=_about(
            f"paper: {PAPER_METHOD} in place of {DEFAULT_METHOD}, sgd at 0.1, batches of 128, DLRM's start",
            *PRESETS,
        ),
    )
    min_count: int | None = field(
        default=None,
        metadata=_about(
            f"occurrences in training after which an id has a row of its own; others read zeros (default for "
            f"{DEFAULT_METHOD}: 2; 1 for all)"
        ),
    )
    cap: int | None = field(
        default=None,
        metadata=_about("most parameters of any one table; cce without a budget: those of 256 vectors"),
    )
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
    start_scale: str | float = field(
        default="auto",
        metadata=_about(
            "scale of vectors at the start: uniform, dlrm, zero or a standard deviation; "
            "auto: dlrm for full tables with preset paper, else uniform"
        ),
    )
    embedding_dim: int = field(default=16, metadata=_about("dimension of the vectors"))
    codebook_dtype: str = field(
        default="float32",
        metadata=_about(
            "type in which tables are stored and trained; the model's networks get float32", *CODEBOOK_DTYPES
        ),
    )
    sparse: bool = field(
        default=False,
        metadata=_about(
            "sparse gradients: for large tables, with sgd, rowwise_adagrad, lazy_adam, adagrad or sparse_adam"
        ),
    )
    epochs: int = field(default=1, metadata=_about("passes over the training rows; 0 with start_from"))
    batch_size: int = field(
        default=BY_PRESET,
        metadata=_about(f"rows of an optimizer step, over all processes together {_by_preset('batch_size')}"),
    )
    shuffle: bool = field(
        default=True, metadata=_about("shuffle the rows of an epoch; without, they come as prepared: by time, in a log")
    )
    accumulate: int = field(default=1, metadata=_about("pieces that a batch is computed in, to save memory"))
    optimizer: str = field(
        default=BY_PRESET,
        metadata=_about(
            f"adam, adamw, adagrad, sgd, rowwise_adagrad, lazy_adam or any other of torch {_by_preset('optimizer')}"
        ),
    )
    optimizer_options: dict[str, Any] = field(
        default_factory=dict, metadata=_about("further arguments of the optimizer, such as momentum=0.9")
    )
    lr: float = field(default=BY_PRESET, metadata=_about(f"learning rate {_by_preset('lr')}"))
    row_lr: float | None = field(
        default=None,
        metadata=_about("learning rate of int8 rows, which move as by Adam (default: lr with adam, adamw, else 0.003)"),
    )
    lr_schedule: str = field(default="constant", metadata=_about("what becomes of it after the warm-up", *LR_SCHEDULES))
    warmup_steps: int = field(default=0, metadata=_about("steps in which the learning rate rises to its value"))
    weight_decay: float = field(default=0.0, metadata=_about("of the tables, as the optimizer has it"))
    network_weight_decay: float = field(default=0.0, metadata=_about("of the rest of the model"))
    precision: str = field(
        default="float32", metadata=_about("of the computation: bf16 computes networks in half the bits", *PRECISIONS)
    )
    cluster_schedule: str = field(
        default="auto",
        metadata=_about(
            "when tables are clustered; auto: after each of the first 6 epochs, one-epoch if there is one; "
            "never if they train as int8 rows",
            *SCHEDULES,
        ),
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
    refits: int | None = field(
        default=None,
        metadata=_about(
            "rounds of refits after the last epoch: pointers from the vectors that ids want; left out: 5 for "
            f"{DEFAULT_METHOD} where at most 4 tables learn pointers, or there are 4 rows for each id that does"
        ),
    )
    refit_network: str = field(
        default="auto",
        metadata=_about("train the network between refits, on a third of the rows; auto: if it is one", *NETWORKS),
    )
    refit_nbytes: int | None = field(
        default=None,
        metadata=_about(
            "most bytes of vectors and curvatures that a refit holds at a time; with fewer it passes over more often; "
            "left out: half of what full tables would hold under Adam, but 1 MB to 1 GB"
        ),
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
    logger: str | None = field(
        default=None, metadata=_about("where the log goes besides the folder of the run: tensorboard, wandb or mlflow")
    )
    seed: int = field(default=0, metadata=_about("of everything random"))
    plugins: list[str] = field(
        default_factory=list,
        metadata=_about("Python files or modules that were loaded with cce.load_plugins and that the run needs"),
    )
    device: str = field(default="auto", metadata=_about("cpu, cuda, or auto: cuda where there is one"))
    threads: int | None = field(default=None, metadata=_about("of torch on the CPU"))

    def __post_init__(self) -> None:
        self._take_preset()
        self._check_types()
        check_plugins(self.plugins)
        for name in ("model_options", "method_options", "optimizer_options"):
            if not isinstance(getattr(self, name), dict):
                raise TypeError(f"{name} must be a table of names and values, got {getattr(self, name)!r}.")
        for each in fields(self):
            if each.metadata["choices"]:
                check_choice(each.name, getattr(self, each.name), each.metadata["choices"])
        self._check_numbers()
        self._check_pairs()
        check_learning(self)

    def _take_preset(self) -> None:
        check_choice("preset", self.preset, PRESETS)
        for name, value in PRESET_OPTIONS[self.preset].items():
            if getattr(self, name) is BY_PRESET:
                object.__setattr__(self, name, value)
        if self.preset == "paper" and self.method == DEFAULT_METHOD:
            object.__setattr__(self, "method", PAPER_METHOD)

    @property
    def default_folder(self) -> Path:
        """The folder of a run that is given none: `runs/DATA-METHOD`."""
        return Path("runs") / f"{Path(self.data).resolve().name}-{self.method}"

    def _check_types(self) -> None:
        kinds: dict[str, tuple[type, ...]] = {"bool": (bool,), "str": (str,), "float": (int, float)}
        kinds["str | float"] = (str, int, float)
        for each in fields(self):
            word, value = str(each.type).removesuffix(" | None"), getattr(self, each.name)
            may_be_none = word != each.type
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
        check_start_scale("start_scale", self.start_scale, ("auto", *START_SCALES))
        for name in ("lr", "row_lr", "weight_decay", "network_weight_decay"):
            if not 0 <= (getattr(self, name) or 0) < float("inf"):
                raise ValueError(f"{name} must be finite and at least 0, got {getattr(self, name)}.")

    def _check_pairs(self) -> None:
        _ = self.budget  # which rejects two limits
        if self.batch_size % self.accumulate:
            sizes = f"batch_size={self.batch_size} and accumulate={self.accumulate}"
            raise ValueError(f"batch_size must be a multiple of accumulate, got {sizes}.")
        check_optimizer(self)
        if self.start_from is not None and self.start_scale != "auto":
            raise ValueError(f"start_scale does not go with start_from, got {self.start_scale!r}.")
        for name, why in NOT_METHOD_OPTIONS.items():
            if name in self.method_options:
                raise ValueError(f"method_options must leave out {name}: {why}, got {self.method_options[name]!r}.")
        if self.logger is not None:
            check_choice("logger", self.logger, LOGGERS)
        check_metrics(self.metrics, group_by=self.group_by)
        check_best_by(self.best_by, self.metrics)

    @property
    def says_when_to_cluster(self) -> bool:
        """Whether any option does."""
        given = (self.cluster_every, self.cluster_at_epochs, self.cluster_times)
        return self.cluster_schedule != "auto" or any(each is not None for each in given)

    @property
    def budget(self) -> Budget:
        """What the tables may hold."""
        return Budget(*(self.cap, self.num_params, self.nbytes, self.compression, self.budget_rule))
