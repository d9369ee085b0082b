"""The contract that every embedding table must pass, ours and those of other packages."""

from __future__ import annotations

from typing import Any

import torch

from cce.testing.base import DIM
from cce.testing.modules import ModuleTests
from cce.testing.sizes import SizeTests
from cce.testing.values import ValueTests

SLOW_TESTS = frozenset(  # tests that compile or make many tables; pytest has no mark that all know
    {
        "test_a_budget_is_met_from_below_and_nearly_spent",
        "test_any_number_of_threads_gives_the_same",
        "test_any_sizes_and_budgets",
        "test_fits_a_trained_table_or_says_why_not",
        "test_starts_with_the_common_mean_and_variance",
        "test_torch_compile",
        "test_torch_export_with_any_number_of_ids",
    }
)
ONCE_A_CLASS = frozenset(name for name in vars(ModuleTests) if name.startswith("test_"))


class EmbeddingContract(ValueTests, ModuleTests, SizeTests):
    """Inherit, set `table_class`, and write `reference`: the formula of the method for one id.

    Class attributes say where a method differs from the rule: `options`, `compression`, `budget_excess`,
    `fills_budget`, `fits_tables`, `has_sparse`, `has_matrix_products`. A test that does not apply is switched off by
    setting its name to None. `class TestMore(TestMine, variant=True)` tests other `options` of a class that is under
    contract already, by its values and sizes alone: pickles, threads and compilers are tried `ONCE_A_CLASS`.
    """

    def __init_subclass__(cls, *, variant: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if variant:
            for name in ONCE_A_CLASS:
                setattr(cls, name, None)


class LinearContract(EmbeddingContract):
    """For tables `T = H · M` that inherit `LinearEmbedding`: H is also written out as a dense matrix and multiplied."""

    def test_is_the_product_of_h_and_m(self) -> None:
        table = self.make(200, DIM).double()
        rows, weights = table.lookup(torch.arange(200))
        weights = torch.ones_like(rows) if weights is None else weights
        columns = []
        for column in range(rows.shape[1]):
            h = torch.zeros(200, len(table.codebook), dtype=torch.float64)
            for term in range(rows.shape[2]):
                h[torch.arange(200), rows[:, column, term]] += weights[:, column, term].double()
            columns.append(h @ table.codebook)
        torch.testing.assert_close(table.to_dense(), torch.cat(columns, dim=1).detach())

    def test_is_linear_in_its_codebook(self) -> None:
        table, ids = self.make().double(), self.ids(20)
        before = table(ids)
        with torch.no_grad():
            table.codebook.mul_(-3)
        torch.testing.assert_close(table(ids), -3 * before)
