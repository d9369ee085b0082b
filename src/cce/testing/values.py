"""What a table computes: its formula, its dense form, gradients, padding, bags, float types, its start, wrong ids."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from cce.embeddings import EmbeddingBag
from cce.testing.base import DIM, NUM_IDS, ContractBase, trained


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

    def test_int32_and_int64_ids_give_the_same(self) -> None:
        table, ids = self.make(), self.ids(9)
        self.assert_same(table(ids), table(ids.int()))

    def test_ids_need_not_be_contiguous(self) -> None:
        table, ids = self.make(), self.ids(6, 8)
        self.assert_same(table(ids.T[::2]), table(ids.T[::2].contiguous()))

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

    def test_negative_padding_idx_counts_from_the_end(self) -> None:
        assert self.make(padding_idx=-1).padding_idx == NUM_IDS - 1

    def test_all_float_types(self) -> None:
        exact = self.make(dtype=torch.float64)(self.ids(20))
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            table = self.make(dtype=dtype)
            vectors = table(self.ids(20))
            assert vectors.dtype == dtype
            torch.testing.assert_close(vectors.double(), exact, rtol=0.05, atol=0.02)
            vectors.sum().backward()
            assert all(parameter.grad.dtype == dtype for parameter in trained(table).values())

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
