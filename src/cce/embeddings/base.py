"""The contract of every embedding table: ids in, vectors out, sized by a budget, honest about its bytes."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from cce.checks import RemembersArguments, arguments_of, check_flag, check_range, check_start_scale, check_type
from cce.embeddings.initialization import StartScale, new_parameter, start_variance
from cce.embeddings.options import Check, CommonOptions, Options, TrainingDefaults, optional
from cce.embeddings.sizing import OPEN_ERROR, Shapes, TableRequest, most_within
from cce.footprint import Footprint
from cce.indexing import IndexModule, blocks, check_generator, check_ids, common_generator

MAX_IDS = 2**63  # ids are non-negative 64-bit integers
DENSE_BLOCK = 1 << 16  # ids at a time in to_dense


class Embedding(RemembersArguments, nn.Module, ABC):
    """A table of `num_embeddings` vectors of `embedding_dim` values, stored in some smaller form.

    With `num_embeddings=None`, where a method `takes_any_id`, ids are any integers of 64 bits, negative ones too.

    The constructor differs from torch's: a class of ours takes its sizes, such as `num_rows`, and has no `max_norm`,
    `norm_type`, `scale_grad_by_freq` and `_weight`; `create_embedding` finds the sizes. `device` and
    `dtype` are those of the parameters, as in torch: on the meta device nothing is drawn or held in memory.

    Ids, int32 or int64 of any shape `(*s)`, give vectors `(*s, embedding_dim)`; on the CPU their range is checked. The
    id `padding_idx` always gives the zero vector and no gradient. `sparse=True` gives sparse gradients to what is
    looked up by row. `start_scale` is the scale of the vectors at the start: "uniform", "dlrm", "zero" or a standard
    deviation (`initialization`); by default that of the method.
    """

    num_embeddings: Any  # an int; None: any ids
    method: ClassVar[str]  # its name in create_embedding
    option_checks: ClassVar[Mapping[str, Check]] = {}  # rules for the options of the constructor
    sized_by: ClassVar[str | None] = "num_rows"  # the argument that a budget decides; None: there is nothing to decide
    usual_start: ClassVar[StartScale] = "uniform"
    takes_any_id: ClassVar[bool] = False  # whether num_embeddings may be None

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        *,
        padding_idx: int | None = None,
        sparse: bool = False,
        start_scale: StartScale | None = None,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_num_embeddings(num_embeddings, type(self))
        check_range("embedding_dim", embedding_dim, 1, MAX_IDS)
        check_flag("sparse", sparse)
        self.check_options(start_scale=start_scale)
        if padding_idx is not None:
            padding_idx = checked_padding(padding_idx, num_embeddings)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.sparse = sparse
        self.start_scale = self.usual_start if start_scale is None else start_scale

    def make_parameters(self, options: Options, common: CommonOptions) -> None:
        """Make the parameters that `shapes` names of checked options, and draw everything: a constructor's last step.

        Hash functions and pointers are there already, on the meta device.
        """
        for name, shape in self.shapes(self.num_embeddings, self.embedding_dim, options).parameters.items():
            parameter = new_parameter(shape, device=common.get("device"), dtype=common.get("dtype"))
            listed, _, index = name.rpartition(".")
            if not listed:
                setattr(self, name, parameter)
            elif index == "0":
                setattr(self, listed, nn.ParameterList([parameter]))
            else:
                getattr(self, listed).append(parameter)
        self.reset_parameters(common.get("generator"))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw hash functions, pointers and parameters again, as the constructor does; on the meta device, nothing.

        A table in another form than at the start, such as a clustered one, keeps its form. Without a generator the
        values come from torch's global one; of several ranks, all take rank 0's.
        """
        device = next(self.parameters()).device
        check_generator(generator)
        index_modules = [module for module in self.children() if isinstance(module, IndexModule)]
        for module in index_modules:
            if device.type == "meta" or any(tensor.is_meta for tensor in module.state_dict().values()):
                module.to_empty(device=device)
        if device.type != "meta":
            generator = common_generator(generator)
            for module in index_modules:
                module.reset_parameters(generator)
            self.init_parameters(generator)

    @abstractmethod
    def init_parameters(self, generator: torch.Generator | None) -> None:
        """Draw the parameters, in place; hash functions and pointers are drawn already."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of ids `(*s)`."""
        ids = input
        check_ids(ids, self.num_embeddings)
        vectors = self.embed(ids.reshape(-1).long()).reshape(*ids.shape, self.embedding_dim)
        if self.padding_idx is not None:
            vectors = vectors.masked_fill((ids == self.padding_idx).unsqueeze(-1), 0)
        return vectors

    @abstractmethod
    def embed(self, ids: Tensor) -> Tensor:
        """Vectors `(n, embedding_dim)` of checked int64 ids `(n)`."""

    def fit_to(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Become the nearest table to `weight` `(num_embeddings, embedding_dim)` that this method finds, if it can."""
        raise ValueError(f"method {self.method!r} cannot start from a trained table.")

    @classmethod
    def size_for_budget(cls, num_embeddings: Any, embedding_dim: int, num_params: int, options: Options) -> Options:
        """The constructor's arguments that make the largest table of at most `num_params` parameters.

        `options` holds every other argument of the constructor, with its default where the caller gave none. A method
        whose parameters are not in proportion to the argument `sized_by` has a rule of its own.
        """
        one = options if cls.sized_by is None else {**options, cls.sized_by: 1}
        smallest = cls.shapes(num_embeddings, embedding_dim, one).num_params
        check_budget(cls.method, num_params, smallest)
        return {} if cls.sized_by is None else {cls.sized_by: num_params // smallest}

    @classmethod
    @abstractmethod
    def shapes(cls, num_embeddings: Any, embedding_dim: int, arguments: Options) -> Shapes:
        """Shapes of the parameters, by name, and sizes of the rest: what the constructor makes of these arguments."""

    @classmethod
    def footprint(cls, num_embeddings: Any, embedding_dim: int, arguments: Options, *, itemsize: int = 4) -> Footprint:
        """What a table of these complete arguments holds, without making it; `itemsize` is the bytes of a value."""
        shapes = cls.shapes(num_embeddings, embedding_dim, arguments)
        full_params = (num_embeddings or 0) * embedding_dim
        return Footprint(
            name="",
            method=cls.method,
            num_embeddings=num_embeddings or 0,
            embedding_dim=embedding_dim,
            num_params=shapes.num_params,
            codebook_nbytes=shapes.codebook_nbytes(itemsize),
            pointer_nbytes=shapes.pointer_nbytes,
            full_params=full_params,
            full_nbytes=full_params * itemsize,
        )

    @classmethod
    def size_for_bytes(
        cls, num_embeddings: Any, embedding_dim: int, nbytes: int, options: Options, *, itemsize: int = 4
    ) -> Options:
        """The constructor's arguments that make a table of at most `nbytes` bytes, pointers included, and not far less.

        Raises a ValueError where no table is so small.
        """

        def nbytes_of(num_params: int) -> int:
            arguments = options | cls.size_for_budget(num_embeddings, embedding_dim, num_params, options)
            return cls.footprint(num_embeddings, embedding_dim, arguments, itemsize=itemsize).nbytes

        most = nbytes // (1 if num_embeddings is None else itemsize)  # open tables may have rows of a byte a value
        most = most if num_embeddings is None else min(most, num_embeddings * embedding_dim)
        num_params = most_within(nbytes, most, nbytes_of)
        if num_params is None:
            num_params = TableRequest(cls, num_embeddings, embedding_dim, options).fewest
            if nbytes_of(num_params) > nbytes:
                raise ValueError(
                    f"nbytes must be at least {nbytes_of(num_params)} for method {cls.method!r} of these sizes, "
                    f"got {nbytes}."
                )
        return cls.size_for_budget(num_embeddings, embedding_dim, num_params, options)

    @classmethod
    def from_table(cls, weight: Tensor, *, num_params: int, **options: Any) -> Self:
        """A table of at most `num_params` parameters that starts as near to the trained `weight` as it can."""
        check_type("weight", weight, Tensor, "a Tensor")
        if weight.dim() != 2:
            raise ValueError(f"weight must have shape (num_embeddings, embedding_dim), got {tuple(weight.shape)}.")
        check_floating(weight)
        check_range("num_params", num_params, 1, MAX_IDS)
        given = {"device": weight.device, "dtype": weight.dtype, **options}
        request = TableRequest(cls, len(weight), weight.shape[1], given)
        table = cls(*weight.shape, **{**given, **request.sizes(min(num_params, weight.numel()))})
        table.fit_to(weight.detach(), generator=options.get("generator"))
        return table

    @classmethod
    def complete_options(cls, options: Mapping[str, Any]) -> Options:
        """`options` completed with the constructor's defaults; a wrong name is rejected with the valid ones.

        Where a constructor has `**options`, those of the class that it passes them to count, too.
        """
        known: dict[str, inspect.Parameter] = {}
        for kind in (each for each in cls.__mro__ if "__init__" in vars(each)):
            parameters = inspect.signature(kind).parameters.values()
            known |= {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in known}
            if all(p.kind is not p.VAR_KEYWORD for p in parameters):
                break
        for name in sorted(options.keys() - known.keys()):
            raise TypeError(f"method {cls.method!r} has no option {name!r}; its options are {', '.join(known)}.")
        cls.check_options(**options)
        return {p.name: p.default for p in known.values() if p.default is not p.empty} | dict(options)

    @classmethod
    def check_options(cls, **options: Any) -> Options:
        """The options; values that break the rules in `option_checks` are rejected."""
        checks = {"start_scale": optional(check_start_scale), **cls.option_checks}
        for name, value in options.items():
            if name in checks:
                checks[name](name, value)
        return options

    @property
    def start_variance(self) -> float:
        """The variance of every value of the table at the start, which its constructor gives it."""
        return start_variance(self.num_embeddings, self.embedding_dim, self.start_scale)

    @classmethod
    def training_defaults(cls) -> TrainingDefaults:
        """What a training run does with its tables by default."""
        return TrainingDefaults()

    @property
    def num_params(self) -> int:
        """The exact number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def codebook_nbytes(self) -> int:
        """Bytes of everything trainable."""
        return sum(parameter.nbytes for parameter in self.parameters())

    @property
    def pointer_nbytes(self) -> int:
        """Bytes of what says where to look: learned pointers and the seeds of hash functions."""
        return sum(module.nbytes for module in self.modules() if isinstance(module, IndexModule))

    @property
    def nbytes(self) -> int:
        """Bytes of everything stored, pointers included."""
        return self.codebook_nbytes + self.pointer_nbytes

    @torch.no_grad()
    def to_dense(self, ids: Tensor | None = None) -> Tensor:
        """The `(num_embeddings, embedding_dim)` table that this one stands for, or the rows `ids` of it."""
        device = next(self.parameters()).device
        if ids is not None:
            return self(ids.to(device) if isinstance(ids, Tensor) else ids)  # type: ignore[no-any-return]
        if self.num_embeddings is None:
            raise ValueError("ids must be given: an open table has a vector for any of them.")
        return torch.cat([self(block.to(device)) for block in blocks(self.num_embeddings, DENSE_BLOCK)])

    def __getattr__(self, name: str) -> Tensor | nn.Module:
        try:
            return nn.Module.__getattr__(self, name)
        except AttributeError:
            if name != "weight":
                raise
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute 'weight': "
            "to_dense() gives the whole table, to_dense(ids) some rows of it."
        )

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}, num_params={self.num_params}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if "start_scale" in arguments_of(self):
            parts.append(f"start_scale={self.start_scale!r}")
        return ", ".join(parts)


def check_num_embeddings(num_embeddings: int | None, kind: type[Embedding]) -> None:
    """Reject a number of ids that there cannot be, and None where a method must know them."""
    if num_embeddings is None and not kind.takes_any_id:
        raise ValueError(OPEN_ERROR.format(method=kind.method))
    if num_embeddings is not None:
        check_range("num_embeddings", num_embeddings, 1, MAX_IDS)


def checked_padding(padding_idx: int, num_embeddings: int | None) -> int:
    """The id of padding; torch counts negative ones from the end, where there is one."""
    if num_embeddings is None:
        check_range("padding_idx", padding_idx, -MAX_IDS, MAX_IDS)
        return padding_idx
    check_range("padding_idx", padding_idx, -num_embeddings, num_embeddings)
    return padding_idx % num_embeddings


def check_budget(method: str, num_params: int, smallest: int) -> None:
    """Reject a budget below the smallest table of a method, and say how large that is."""
    if num_params < smallest:
        raise ValueError(
            f"num_params must be at least {smallest} for method {method!r} of these sizes, got {num_params}."
        )


def check_weight(table: Embedding, weight: Tensor) -> None:
    """Reject a trained table of another shape, or with non-finite values."""
    check_type("weight", weight, Tensor, "a Tensor")
    if table.num_embeddings is None:
        raise ValueError("num_embeddings must be given to start from a trained table, got None.")
    expected = (table.num_embeddings, table.embedding_dim)
    if tuple(weight.shape) != expected:
        raise ValueError(f"weight must have shape {expected}, got {tuple(weight.shape)}.")
    check_floating(weight)
    if not bool(weight.isfinite().all()):
        raise ValueError(f"weight must be finite, got NaN or inf in {int((~weight.isfinite()).any(1).sum())} rows.")


def check_floating(weight: Tensor) -> None:
    """Reject a trained table of integers."""
    if not weight.is_floating_point():
        raise TypeError(f"weight must have a floating-point dtype, got {weight.dtype}.")
