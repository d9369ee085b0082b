"""The options of a training run: the same names on the command line, in a TOML file and in Python. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from cce.budget import DEFAULT_METHOD, FULL, RULES, Budget
from cce.checks import check_choice, check_range
from cce.evaluation import DEFAULT_BEST_BY, DEFAULT_METRICS, check_best_by, check_metrics, list_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_METHOD_OPTIONS = {"pointer_file": "tables of a run share none", "preset": "it is an option of the run"}
LR_SCHEDULES = ("constant", "linear", "cosine")
MAY_BE_ZERO = ("seed", "warmup_steps", "refits")
PRESETS = ("tuned", "paper")
PRECISIONS = ("float32", "bf16")
AUCS = ("exact", "streaming")
CODEBOOK_DTYPES = ("float32", "float16", "bfloat16")
MAX_THREADS = 2**16
SPARSE_OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad", "sparse_adam")
MAY_CHANGE = ("epochs", "max_steps", "device", "threads", "keep_last", "tensorboard")  # of a run that is resumed
MAY_MOVE = ("data", "start_from", "model")  # files and folders, which may have another name
FLOAT16_LOST = 2.0**-25  # the largest number that float16 rounds to zero
FLOAT16_LARGEST = 65504.0
NO_SQUARES = ("sgd", "rowwise_adagrad", "asgd", "rprop")  # or they are stored in float32
BETAS = ("adam", "adamw", "nadam", "radam", "sparse_adam")
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

    The model and its training are the paper's by default: DLRM, plain SGD at 0.1, batches of 128. How tables learn is
    tuned (docs/results.md), as their method has it; `preset="paper"` gives the paper's columns, schedule and pointers.
    """

    data: str = field(metadata=_about("folder of a data set made by `cce prepare`"))
    model: str = field(default="dlrm", metadata=_about("dlrm, gmf, or path/to/file.py:Name"))
    model_options: dict[str, Any] = field(
        default_factory=dict, metadata=_about("further arguments of the model, such as bottom=[64,32]")
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
        metadata=_about("how tables learn: tuned, as docs/results.md measures, or as in the paper", *PRESETS),
    )
    learned_min_count: int | None = field(
        default=None,
        metadata=_about("ids that training sees less often stay hashed, whatever the preset has for it"),
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
    refits: int = field(
        default=0,
        metadata=_about("rounds of refits after the last epoch: pointers from the vectors that ids want"),
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
        if self.budget.is_full and self.method != FULL:
            raise ValueError(
                f"give one of cap, num_params, nbytes and compression with method {self.method!r}, got none."
            )
        if self.batch_size % self.accumulate:
            sizes = f"batch_size={self.batch_size} and accumulate={self.accumulate}"
            raise ValueError(f"batch_size must be a multiple of accumulate, got {sizes}.")
        if self.codebook_dtype == "float16":
            check_float16(self.optimizer, self.optimizer_options, lr=self.lr)
        self._check_sparse()
        for name, why in NOT_METHOD_OPTIONS.items():
            if name in self.method_options:
                raise ValueError(f"method_options must leave out {name}: {why}, got {self.method_options[name]!r}.")
        if self.preset == "paper" and self.learned_min_count not in (None, 1):
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


def check_float16(optimizer: str, options: Mapping[str, Any], *, lr: float = 0.0) -> None:
    """Reject an optimizer that would divide by squares of gradients that float16 has lost.

    Torch keeps an optimizer's state in the type of the parameter. A second moment adds `(1 - beta2) * g**2`, and
    float16 rounds what is not above 2**-25 to zero: the step of such a gradient is `lr * g / eps`, however small `eps`
    is. An `eps` of at least the largest gradient whose square is lost, `sqrt(2**-25 / (1 - beta2))`, bounds it by `lr`.
    """
    if lr > FLOAT16_LARGEST:
        raise ValueError(f"lr must be at most {FLOAT16_LARGEST:g} with codebook_dtype 'float16', got {lr:g}.")
    if optimizer in NO_SQUARES:
        return
    known = (*NO_SQUARES, *BETAS, "rmsprop", "adagrad")
    if optimizer not in known:
        raise ValueError(f"codebook_dtype 'float16' must have an optimizer of {', '.join(known)}; got {optimizer!r}.")
    least, eps = math.sqrt(FLOAT16_LOST / _share_of_squares(optimizer, options)), options.get("eps")
    if not isinstance(eps, int | float) or not least <= eps < math.inf:
        got = "none" if eps is None else repr(eps)
        raise ValueError(
            f"codebook_dtype 'float16' needs optimizer_options eps of at least {least:.4g} with optimizer "
            f"{optimizer!r}, as squares of smaller gradients are 0 in float16, got {got}; or take bfloat16, sgd or "
            "rowwise_adagrad."
        )


def _share_of_squares(optimizer: str, options: Mapping[str, Any]) -> float:
    """What the square of a gradient is multiplied by before it is added to the second moment."""
    if optimizer == "adagrad":
        return 1.0
    betas = options.get("betas", (0.9, 0.999)) if optimizer in BETAS else (0.0, options.get("alpha", 0.99))
    if not isinstance(betas, list | tuple) or len(betas) != 2 or not all(type(b) in (int, float) for b in betas):
        raise TypeError(f"optimizer_options betas must be two numbers, got {betas!r}.")
    if not 0 <= betas[1] < 1:
        name = "betas" if optimizer in BETAS else "alpha"
        raise ValueError(f"optimizer_options {name} must lie in [0, 1), got {options[name]!r}.")
    return float(1 - betas[1])
