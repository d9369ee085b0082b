"""What a contract says of a class, and how its tests make tables, ids and gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from cce.embeddings import Embedding, create_embedding

NUM_IDS, DIM = 1000, 16  # of the tables that the tests make
BUDGETS = frozenset({"budget", "cap", "num_params", "nbytes", "compression"})


def trained(table: Any) -> dict[str, Any]:
    """The parameters that have gradients, by name; a table may keep others for another form of itself."""
    return {name: parameter for name, parameter in table.named_parameters() if parameter.requires_grad}


class ContractBase:
    """The class under test, where it differs from the rule, and helpers."""

    table_class: ClassVar[type[Embedding]]
    options: ClassVar[Mapping[str, Any]] = {}  # of its constructor, beyond the budget
    compression: ClassVar[float] = 4  # 1 for a table that is never smaller than the full one
    embedding_dims: ClassVar[tuple[int, ...]] = (1, 2, 3, 7, 13, 24)  # that it must be able to have
    budget_excess: ClassVar[float] = 0  # the share by which a table may exceed its budget
    fills_budget: ClassVar[bool] = True  # to 98 % at ordinary sizes
    fits_tables: ClassVar[bool] = True  # fit_to approximates a trained table; otherwise it raises a ValueError
    has_sparse: ClassVar[bool] = True  # sparse=True gives sparse gradients; otherwise it is rejected
    has_matrix_products: ClassVar[bool] = False  # of torch: their bits depend on the machine and on threads
    num_variance_seeds: ClassVar[int] = 8  # tables whose values the variance at the start is measured on

    def reference(self, table: Any, x: int) -> Tensor:
        """The vector of one id by the formula of the method, as slow as it likes: to be written for each class."""
        raise NotImplementedError(f"{type(self).__name__} must define reference(table, x): the vector of the id x.")

    def make(self, num_ids: int = NUM_IDS, dim: int = DIM, *, seed: int = 0, **options: Any) -> Any:
        """A table of these sizes; `options` are those of `create_embedding`, with `compression` as the default budget.

        Override it to test tables in another state, such as trained or clustered ones.
        """
        given = {**self.options, **options}
        if not BUDGETS & given.keys():
            given["compression"] = self.compression
        return create_embedding(self.table_class, num_ids, dim, seed=seed, **given)

    @property
    def low_compression(self) -> float:
        """A compression that small tables can have, too."""
        return min(self.compression, 1.9)

    @staticmethod
    def ids(*shape: int, high: int = NUM_IDS) -> Tensor:
        """Random ids, the same ones at every call."""
        return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(7))

    @staticmethod
    def gradients(table: Any, ids: Tensor) -> dict[str, Tensor]:
        """Gradients of all trained parameters, by name, of a weighted sum of the vectors of `ids`."""
        table.zero_grad()
        weight = torch.linspace(-1, 2, table.embedding_dim, dtype=next(table.parameters()).dtype)
        (table(ids) * weight).sum().backward()
        return {name: parameter.grad for name, parameter in trained(table).items()}

    def assert_same(self, found: Tensor, expected: Tensor) -> None:
        """Equal bits where the library does the sums itself; with torch's matrix products, equal up to rounding."""
        if self.has_matrix_products and expected.is_floating_point():
            scale = expected.abs().max().item()  # a sum rounds by its largest terms
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * scale)
        else:
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
