"""The contract that every embedding table must pass, ours and those of other packages, and its part on sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cce.budget import Budget
from cce.embeddings import Embedding, FullEmbedding, TableRequest
from cce.testing.modules import ModuleTests
from cce.testing.values import DIM, NUM_IDS, ContractBase, ValueTests, trained

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


class SizeTests(ContractBase):
    """What a table holds: exact counts, footprints before it is made, budgets, trained tables."""

    def test_num_params_and_bytes_are_exact(self) -> None:
        table = self.make()
        assert table.num_params == sum(parameter.numel() for parameter in trained(table).values())
        assert table.nbytes == sum(tensor.nbytes for tensor in table.state_dict().values())
        assert table.nbytes == table.codebook_nbytes + table.pointer_nbytes

    def test_its_footprint_is_what_it_holds(self) -> None:
        for dtype in (torch.float32, torch.float64):
            table = self.make(dtype=dtype)
            request = TableRequest(self.table_class, NUM_IDS, DIM, self.options, itemsize=dtype.itemsize)
            planned = request.for_budget(Budget(compression=self.compression))
            arguments = self.table_class.complete_options({**self.options, **planned.sizes})
            shapes = self.table_class.shapes(NUM_IDS, DIM, arguments)
            assert dict(shapes.parameters) == {name: tuple(p.shape) for name, p in trained(table).items()}
            for name in ("num_params", "codebook_nbytes", "pointer_nbytes", "nbytes"):
                assert getattr(planned, name) == getattr(table, name), name

    # -- budgets -------------------------------------------------------------------------------------------------------

    def test_a_budget_is_met_from_below_and_nearly_spent(self) -> None:
        if self.compression == 1:
            return
        for budget in (60_000, 123_456):
            table = self.make(20_000, DIM, num_params=budget)
            assert table.num_params <= self.most(budget)
            if self.fills_budget:
                assert table.num_params >= 0.98 * budget

    def test_a_budget_in_bytes_is_met_from_below(self) -> None:
        budget = self.make().nbytes
        assert self.make(nbytes=budget).nbytes <= self.most(budget)

    def test_a_budget_that_holds_the_full_table_gives_the_full_table(self) -> None:
        for budget in (NUM_IDS * DIM, 10 * NUM_IDS * DIM):
            table = self.make(num_params=budget, padding_idx=2)
            assert isinstance(table, FullEmbedding)
            assert table.num_params == NUM_IDS * DIM
            assert table.padding_idx == 2

    def test_a_budget_too_small_says_the_smallest_that_works(self) -> None:
        smallest = TableRequest(self.table_class, NUM_IDS, DIM, self.options).fewest
        table = self.make(num_params=smallest)
        assert table.num_params <= self.most(smallest)
        assert table(self.ids(3)).shape == (3, DIM)
        for budget in {1, smallest - 1} - {0, smallest}:
            with pytest.raises(ValueError, match=f"at least {smallest} for method '{self.table_class.method}'"):
                self.make(num_params=budget)

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(num_ids=st.integers(1, 3000), dim=st.integers(1, 40), share=st.floats(0.001, 1.2))
    def test_any_sizes_and_budgets(self, num_ids: int, dim: int, share: float) -> None:
        budget = max(1, int(num_ids * dim * share))
        try:
            table = self.make(num_ids, dim, num_params=budget)
        except ValueError as error:
            assert "at least" in str(error)  # noqa: PT017
            return
        assert table.num_params <= self.most(min(num_ids * dim, budget))
        vectors = table(torch.tensor([0, num_ids - 1, num_ids // 2]))
        assert vectors.shape == (3, dim)
        assert torch.isfinite(vectors).all()

    def most(self, budget: int) -> float:
        """What a table of this budget may hold."""
        return budget * (1 + self.budget_excess)

    # -- trained tables ------------------------------------------------------------------------------------------------

    def test_fits_a_trained_table_or_says_why_not(self) -> None:
        weight = torch.randn(NUM_IDS, DIM, generator=torch.Generator().manual_seed(3))
        budget = int(NUM_IDS * DIM / self.compression)
        if self.table_class.fit_to is Embedding.fit_to:
            with pytest.raises(ValueError, match=self.table_class.method):
                self.table_class.from_table(weight, num_params=budget, **self.options)
            return
        table = self.table_class.from_table(weight, num_params=budget, **self.options)
        assert table.num_params <= self.most(budget)
        assert (table.to_dense() - weight).norm() < weight.norm()  # nearer than zeros are


class EmbeddingContract(ValueTests, ModuleTests, SizeTests):
    """Inherit, set `table_class`, and write `reference`: the formula of the method for one id.

    Class attributes say where a method differs from the rule: `options`, `compression`, `budget_excess`,
    `fills_budget`, `has_sparse`, `has_matrix_products`. A test that does not apply is switched off by
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
