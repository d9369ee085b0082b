"""The contract of every embedding table: ids in, vectors out, sized by a budget, honest about its bytes."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from cce.checks import check_flag, check_range, check_type
from cce.indexing import IndexModule, check_ids
from cce.indexing.assignments import blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cce.embeddings.options import Check

MAX_IDS = 2**63  # ids are non-negative 64-bit integers
DENSE_BLOCK = 1 << 16  # ids at a time in to_dense


class Embedding(nn.Module, ABC):
    """A table of `num_embeddings` vectors of `embedding_dim` numbers, stored in some smaller form.

    Ids, int32 or int64 of any shape `(*s)`, give vectors `(*s, embedding_dim)`. The id `padding_idx` always gives the
    zero vector and no gradient. `sparse=True` gives sparse gradients to what is looked up by row.

    `check_ids` says when the values of ids are checked: on the CPU (None, the default), always (True: on a GPU this
    waits for the device), or never (False).
    """

    method: ClassVar[str]  # its name in create_embedding
    option_checks: ClassVar[Mapping[str, Check]] = {}  # rules for the options of the constructor

    def __init__(
        self, num_embeddings: int, embedding_dim: int, *, padding_idx: int | None = None, sparse: bool = False
    ) -> None:
        super().__init__()
        check_range("num_embeddings", num_embeddings, 1, MAX_IDS)
        check_range("embedding_dim", embedding_dim, 1, MAX_IDS)
        check_flag("sparse", sparse)
        if padding_idx is not None:
            check_range("padding_idx", padding_idx, -num_embeddings, num_embeddings)
            padding_idx %= num_embeddings  # torch counts negative ones from the end
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.sparse = sparse
        self.check_ids: bool | None = None

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name for it
        """Vectors `(*s, embedding_dim)` of ids `(*s)`."""
        ids = input
        if self.check_ids is not False:
            check_ids(ids, self.num_embeddings, always=self.check_ids is True)
        vectors = self.compose(ids.reshape(-1).long()).reshape(*ids.shape, self.embedding_dim)
        if self.padding_idx is not None:
            vectors = vectors.masked_fill((ids == self.padding_idx).unsqueeze(-1), 0)
        return vectors

    @abstractmethod
    def compose(self, ids: Tensor) -> Tensor:
        """Vectors `(n, embedding_dim)` of checked int64 ids `(n)`."""

    @abstractmethod
    def approximate(self, weight: Tensor, *, generator: torch.Generator | None = None) -> None:
        """Become the nearest table to `weight` `(num_embeddings, embedding_dim)` that this method finds."""

    @classmethod
    @abstractmethod
    def sizes(
        cls, num_embeddings: int, embedding_dim: int, num_params: int, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The constructor's arguments that make the largest table of at most `num_params` trainable numbers.

        `options` holds every other argument of the constructor, with its default where the caller gave none.
        """

    @classmethod
    @abstractmethod
    def weigh(cls, num_embeddings: int, embedding_dim: int, arguments: Mapping[str, Any]) -> tuple[int, int]:
        """Trainable numbers, and bytes of pointers and seeds, of a table that is not made: `arguments` are complete."""

    @classmethod
    def from_budget(cls, num_embeddings: int, embedding_dim: int, *, num_params: int, **options: Any) -> Self:
        """A table of at most `num_params` trainable numbers; `options` are other arguments of the constructor."""
        check_range("num_embeddings", num_embeddings, 1, MAX_IDS)
        check_range("embedding_dim", embedding_dim, 1, MAX_IDS)
        check_range("num_params", num_params, 1, MAX_IDS)
        complete = cls.complete_options(options)
        num_params = min(num_params, num_embeddings * embedding_dim)
        sizes = cls.sizes(num_embeddings, embedding_dim, num_params, complete)
        for name, size in sizes.items():
            if options.get(name) not in (None, size):
                raise ValueError(f"{name} follows from num_params here: leave it out, got {name}={options[name]}.")
        return cls(num_embeddings, embedding_dim, **(options | sizes))

    @classmethod
    def from_table(cls, weight: Tensor, *, num_params: int, **options: Any) -> Self:
        """A table of at most `num_params` trainable numbers that starts as near to the trained `weight` as it can."""
        check_type("weight", weight, Tensor, "a Tensor")
        if weight.dim() != 2:
            raise ValueError(f"weight must have shape (num_embeddings, embedding_dim), got {tuple(weight.shape)}.")
        if not weight.is_floating_point():
            raise TypeError(f"weight must have a floating-point dtype, got {weight.dtype}.")
        table = cls.from_budget(*weight.shape, num_params=num_params, **options).to(weight.device, weight.dtype)
        table.approximate(weight.detach(), generator=options.get("generator"))
        return table

    @classmethod
    def complete_options(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """`options` with the constructor's defaults beside them; a wrong name is refused with the right ones."""
        known = list(inspect.signature(cls).parameters.values())[2:]  # after num_embeddings and embedding_dim
        wrong = set(options) - {parameter.name for parameter in known}
        if wrong:
            names = ", ".join(parameter.name for parameter in known)
            raise TypeError(f"method {cls.method!r} has no option {sorted(wrong)[0]!r}; its options are {names}.")
        cls.check_options(**options)
        defaults = {p.name: p.default for p in known if p.default is not inspect.Parameter.empty}
        return defaults | dict(options)

    @classmethod
    def check_options(cls, **options: Any) -> None:
        """Reject values that break the rules in `option_checks`."""
        for name, value in options.items():
            if name in cls.option_checks:
                cls.option_checks[name](name, value)

    @property
    def num_params(self) -> int:
        """Trainable numbers, exactly."""
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
        if ids is not None:
            return self(ids)  # type: ignore[no-any-return]
        device = next(self.parameters()).device
        return torch.cat([self(block.to(device)) for block in blocks(self.num_embeddings, DENSE_BLOCK)])

    def extra_repr(self) -> str:
        """What `print` shows."""
        parts = [f"{self.num_embeddings}, {self.embedding_dim}, num_params={self.num_params}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        return ", ".join(parts)


def check_budget(method: str, num_params: int, smallest: int) -> None:
    """Refuse a budget below the smallest table of a method, and say how large that is."""
    if num_params < smallest:
        raise ValueError(
            f"num_params must be at least {smallest} for method {method!r} of these sizes, got {num_params}."
        )


def check_weight(table: Embedding, weight: Tensor) -> None:
    """Refuse a trained table of another shape, or of numbers that are none."""
    check_type("weight", weight, Tensor, "a Tensor")
    expected = (table.num_embeddings, table.embedding_dim)
    if tuple(weight.shape) != expected:
        raise ValueError(f"weight must have shape {expected}, got {tuple(weight.shape)}.")
    if not weight.is_floating_point():
        raise TypeError(f"weight must have a floating-point dtype, got {weight.dtype}.")
    if not bool(weight.isfinite().all()):
        raise ValueError(f"weight must be finite, got NaN or inf in {int((~weight.isfinite()).any(1).sum())} rows.")
