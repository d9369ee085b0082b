"""What a contract says of a class, and what its table computes: its formula, its dense form, gradients, padding, bags,
float types, its start, wrong ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import pytest
import torch
from torch import Tensor

from cce.embeddings import Embedding, EmbeddingBag, create_embedding

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
    embedding_dims: ClassVar[tuple[int, ...]] = (1, 3, 7, 24)  # that it must be able to have
    budget_excess: ClassVar[float] = 0  # the share by which a table may exceed its budget
    fills_budget: ClassVar[bool] = True  # to 98 % at ordinary sizes
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


class ValueTests(ContractBase):
    """Vectors and gradients."""

    def test_equals_the_formula_of_its_paper(self) -> None:
        for dim in (DIM, 10):
            table = self.make(dim=dim).double()
            ids = self.ids(40)
            with torch.no_grad():
                expected = torch.stack([self.reference(table, int(x)) for x in ids])
            torch.testing.assert_close(table(ids), expected, rtol=1e-12, atol=1e-12)

    def test_to_dense_is_the_table_it_stands_for(self) -> None:
        table = self.make()
        ids = self.ids(5, 6)
        torch.testing.assert_close(table(ids), table.to_dense()[ids])
        assert table.to_dense().shape == (NUM_IDS, DIM)
        self.assert_same(table.to_dense(ids), table(ids))
        assert not table.to_dense().requires_grad

    def test_ids_of_any_shape(self) -> None:
        table = self.make()
        for shape in ((), (1,), (7,), (2, 3), (2, 0, 3), (0,), (1, 2, 3, 4)):
            vectors = table(self.ids(*shape))
            assert vectors.shape == (*shape, DIM)
            vectors.sum().backward()
        ids = self.ids(6, 8)
        self.assert_same(table(ids.T[::2].int()), table(ids.T[::2].contiguous()))

    def test_any_embedding_dim_works_by_default(self) -> None:
        for dim in self.embedding_dims:
            table = self.make(dim=dim, compression=1 if dim == 1 else self.low_compression)
            assert table(self.ids(4)).shape == (4, dim)

    def test_bags_pool_rows_of_the_dense_table(self) -> None:
        table, ids, offsets = self.make().double(), self.ids(10), torch.tensor([0, 3, 3, 4])
        dense, padding = table.to_dense(), int(ids[5])
        modes: tuple[Literal["sum", "mean", "max"], ...] = ("sum", "mean", "max")
        for mode in modes:
            expected = torch.nn.functional.embedding_bag(ids, dense, offsets, mode=mode, padding_idx=padding)
            found = EmbeddingBag(table, mode=mode, padding_idx=padding)(ids, offsets)
            torch.testing.assert_close(found, expected)

    # -- gradients -----------------------------------------------------------------------------------------------------

    def test_gradients_are_right_in_float64(self) -> None:
        table = self.make(30, 4, compression=self.low_compression).double()
        ids = self.ids(5, high=30)
        parameters = trained(table)

        def look_up(*values: torch.Tensor) -> Any:
            return torch.func.functional_call(table, dict(zip(parameters, values, strict=True)), (ids,))

        assert torch.autograd.gradcheck(look_up, tuple(parameters.values()))

    def test_sparse_gradients_equal_dense_ones(self) -> None:
        if not self.has_sparse:
            with pytest.raises(ValueError, match="sparse must be False"):
                self.make(sparse=True)
            return
        ids = torch.cat([self.ids(50), self.ids(50)])  # with repetitions
        dense, sparse = (self.gradients(self.make(sparse=flag), ids) for flag in (False, True))
        assert any(gradient.is_sparse for gradient in sparse.values())
        for name, gradient in sparse.items():
            torch.testing.assert_close(gradient.to_dense(), dense[name], rtol=1e-5, atol=1e-5)

    def test_padding_idx_gives_zeros_and_no_gradient(self) -> None:
        table = self.make(padding_idx=3)
        ids = torch.tensor([3, 5, 3])
        vectors = table(ids)
        assert torch.equal(vectors[0], torch.zeros(DIM))
        self.assert_same(vectors[1], self.make()(ids)[1])
        gradients = self.gradients(table, torch.tensor([3, 3]))
        assert all(not gradient.any() for gradient in gradients.values())
        assert self.make(padding_idx=-1).padding_idx == NUM_IDS - 1  # counted from the end

    def test_all_float_types(self) -> None:
        exact = self.make(dtype=torch.float64)(self.ids(20))
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            table = self.make(dtype=dtype)
            vectors = table(self.ids(20))
            assert vectors.dtype == dtype
            torch.testing.assert_close(vectors.double(), exact, rtol=0.05, atol=0.02)
            vectors.sum().backward()
            assert all(parameter.grad.dtype == dtype for parameter in trained(table).values())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.isfinite(self.make()(self.ids(5))).all()

    # -- the start -----------------------------------------------------------------------------------------------------

    def test_equal_seeds_give_equal_bits(self) -> None:
        one, same, other = self.make(seed=1), self.make(seed=1), self.make(seed=2)
        for name, tensor in one.state_dict().items():
            assert torch.equal(tensor, same.state_dict()[name])
        assert not torch.equal(one.to_dense(), other.to_dense())

    def test_starts_with_the_common_mean_and_variance(self) -> None:
        tables = torch.stack([self.make(seed=s).to_dense() for s in range(self.num_variance_seeds)]).double()
        sigma = self.make().start_variance ** 0.5
        assert abs(tables.mean().item()) < 0.03 * sigma
        assert tables.var().item() == pytest.approx(sigma**2, rel=0.06)

    # -- errors --------------------------------------------------------------------------------------------------------

    def test_wrong_ids_are_named(self) -> None:
        table = self.make()
        for wrong in (-1, NUM_IDS, 2**40):
            with pytest.raises(IndexError, match=rf"ids must lie in \[0, {NUM_IDS}\), got {wrong}\."):
                table(torch.tensor([0, wrong]))
        for ids in (torch.tensor([0.5]), torch.tensor([True]), torch.tensor([1], dtype=torch.uint8)):
            kind = str(ids.dtype).replace(".", r"\.")
            with pytest.raises(TypeError, match=rf"ids must be int32 or int64 in \[0, {NUM_IDS}\), got {kind}"):
                table(ids)
        with pytest.raises(TypeError, match=r"ids must be a Tensor .* got list"):
            table([1, 2])

    def test_wrong_options_list_the_right_ones(self) -> None:
        method = self.table_class.method
        with pytest.raises(TypeError, match=f"method '{method}' has no option 'colour'; its options are"):
            self.make(colour="blue")
