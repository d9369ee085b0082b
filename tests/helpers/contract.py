"""What every method must pass. A method's test class inherits this and adds its own formula."""

from __future__ import annotations

import copy
import io
import pickle
from typing import ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

import cce
from cce.embeddings import METHODS
from cce.embeddings.initialization import output_variance

NUM_IDS, DIM = 1000, 16


def load_and_look_up(path: str, method: str, options: dict, ids: torch.Tensor) -> torch.Tensor:
    """In another process: a table of another seed takes over a saved state."""
    table = cce.create_embedding(method, NUM_IDS, DIM, seed=99, **options)
    table.load_state_dict(torch.load(path, weights_only=True))
    return table(ids).detach()


class EmbeddingContract:
    """Inherit, set `method`, and write `reference`: the paper's formula for one id, as slow as it likes."""

    method: ClassVar[str]
    options: ClassVar[dict] = {}  # beyond the budget
    compression: ClassVar[float] = 4
    has_sparse: ClassVar[bool] = True
    has_matrix_products: ClassVar[bool] = False  # of torch: their bits are those of a machine and a number of threads
    fills_budget: ClassVar[bool] = True  # to 98 % at ordinary sizes
    num_variance_seeds: ClassVar[int] = 8

    def reference(self, table, x: int) -> torch.Tensor:
        raise NotImplementedError

    # -- helpers ---------------------------------------------------------------------------------------------------

    def make(self, num_ids=NUM_IDS, dim=DIM, *, seed=0, **options):
        budget = {} if {"num_params", "compression"} & options.keys() else {"compression": self.compression}
        return cce.create_embedding(self.method, num_ids, dim, seed=seed, **{**budget, **self.options, **options})

    @staticmethod
    def ids(*shape: int, high: int = NUM_IDS) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(7))

    @staticmethod
    def gradients(table, ids):
        table.zero_grad()
        weight = torch.linspace(-1, 2, table.embedding_dim, dtype=next(table.parameters()).dtype)
        (table(ids) * weight).sum().backward()
        return {name: parameter.grad for name, parameter in table.named_parameters()}

    def assert_same(self, found, expected):
        """Equal bits where the library does the sums itself; with torch's matrix products, equal up to rounding."""
        if self.has_matrix_products and expected.is_floating_point():
            scale = expected.abs().max().item()  # a sum rounds by its largest terms
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * scale)
        else:
            torch.testing.assert_close(found, expected, rtol=0, atol=0)

    # -- what it computes ------------------------------------------------------------------------------------------

    def test_equals_the_formula_of_its_paper(self):
        for dim in (DIM, 10):
            table = self.make(dim=dim).double()
            ids = self.ids(40)
            with torch.no_grad():
                expected = torch.stack([self.reference(table, int(x)) for x in ids])
            torch.testing.assert_close(table(ids), expected, rtol=1e-12, atol=1e-12)

    def test_to_dense_is_the_table_it_stands_for(self):
        table = self.make()
        ids = self.ids(5, 6)
        torch.testing.assert_close(table(ids), table.to_dense()[ids])
        assert table.to_dense().shape == (NUM_IDS, DIM)
        self.assert_same(table.to_dense(ids), table(ids))
        assert not table.to_dense().requires_grad

    @pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (2, 0, 3), (0,), (1, 2, 3, 4)])
    def test_ids_of_any_shape(self, shape):
        vectors = self.make()(self.ids(*shape))
        assert vectors.shape == (*shape, DIM)
        vectors.sum().backward()

    def test_int32_and_int64_ids_give_the_same(self):
        table, ids = self.make(), self.ids(9)
        self.assert_same(table(ids), table(ids.int()))

    def test_ids_need_not_be_contiguous(self):
        table, ids = self.make(), self.ids(6, 8)
        self.assert_same(table(ids.T[::2]), table(ids.T[::2].contiguous()))

    @pytest.mark.parametrize("dim", [1, 2, 3, 7, 10, 13, 24])
    def test_any_embedding_dim_works_by_default(self, dim):
        table = self.make(dim=dim, compression=1 if self.method == "full" or dim == 1 else 1.9)
        assert table(self.ids(4)).shape == (4, dim)

    # -- gradients -------------------------------------------------------------------------------------------------

    def test_gradients_are_right_in_float64(self):
        table = self.make(30, 4, compression=1 if self.method == "full" else 2).double()
        ids = self.ids(5, high=30)
        names = [name for name, _ in table.named_parameters()]

        def look_up(*values):
            return torch.func.functional_call(table, dict(zip(names, values, strict=True)), (ids,))

        assert torch.autograd.gradcheck(look_up, tuple(table.parameters()))

    def test_sparse_gradients_equal_dense_ones(self):
        if not self.has_sparse:
            with pytest.raises(ValueError, match="sparse must be False"):
                self.make(sparse=True)
            return
        ids = torch.cat([self.ids(50), self.ids(50)])  # with repetitions
        dense, sparse = (self.gradients(self.make(sparse=flag), ids) for flag in (False, True))
        assert any(gradient.is_sparse for gradient in sparse.values())
        for name, gradient in sparse.items():
            torch.testing.assert_close(gradient.to_dense(), dense[name], rtol=1e-5, atol=1e-5)

    def test_padding_idx_gives_zeros_and_no_gradient(self):
        table = self.make(padding_idx=3)
        ids = torch.tensor([3, 5, 3])
        vectors = table(ids)
        assert torch.equal(vectors[0], torch.zeros(DIM))
        self.assert_same(vectors[1], self.make()(ids)[1])
        gradients = self.gradients(table, torch.tensor([3, 3]))
        assert all(not gradient.any() for gradient in gradients.values())

    def test_negative_padding_idx_counts_from_the_end(self):
        assert self.make(padding_idx=-1).padding_idx == NUM_IDS - 1

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_all_float_types(self, dtype):
        table, exact = self.make(dtype=dtype), self.make(dtype=torch.float64)
        vectors = table(self.ids(20))
        assert vectors.dtype == dtype
        torch.testing.assert_close(vectors.double(), exact(self.ids(20)), rtol=0.05, atol=0.02)
        vectors.sum().backward()
        assert all(parameter.grad.dtype == dtype for parameter in table.parameters())

    # -- torch's own machinery -------------------------------------------------------------------------------------

    @pytest.mark.slow
    def test_state_dict_round_trip_in_a_new_process(self, new_process, tmp_path):
        table, ids = self.make(), self.ids(50)
        torch.save(table.state_dict(), tmp_path / "table.pt")
        options = {"compression": self.compression, **self.options}
        loaded = new_process(load_and_look_up, str(tmp_path / "table.pt"), self.method, options, ids)
        self.assert_same(loaded, table(ids).detach())

    def test_deepcopy_shares_nothing(self):
        table, ids = self.make(), self.ids(50)
        twin, before = copy.deepcopy(table), table(ids)
        self.assert_same(twin(ids), before)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.add_(1)
        for name, tensor in twin.state_dict().items():
            assert tensor.numel() == 0 or tensor.data_ptr() != table.state_dict()[name].data_ptr()
        self.assert_same(table(ids), before)

    def test_pickle(self):
        table, ids = self.make(), self.ids(50)
        self.assert_same(pickle.loads(pickle.dumps(table))(ids), table(ids))
        file = io.BytesIO()
        torch.save(table, file)
        file.seek(0)
        self.assert_same(torch.load(file, weights_only=False)(ids), table(ids))

    @pytest.mark.slow
    def test_torch_compile(self):
        torch.compiler.reset()
        table, ids = self.make(padding_idx=0), self.ids(6, 4)
        compiled = torch.compile(table, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(ids), table(ids))
        compiled(ids).square().sum().backward()
        gradients = {name: parameter.grad.clone() for name, parameter in table.named_parameters()}
        table.zero_grad()
        table(ids).square().sum().backward()
        for name, parameter in table.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad)

    def test_vmap_and_functional_gradients(self):
        table, ids = self.make(), self.ids(5, 3)
        torch.testing.assert_close(torch.vmap(table)(ids), table(ids))
        values = {name: parameter.detach() for name, parameter in table.named_parameters()}

        def loss(values, ids):
            return torch.func.functional_call(table, values, (ids,)).square().sum()

        per_sample = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(values, ids)
        whole = torch.func.grad(loss)(values, ids)
        for name, gradient in whole.items():
            torch.testing.assert_close(per_sample[name].sum(0), gradient)

    def test_runs_on_another_device(self):
        """Fake tensors know their device and complain of mixed ones: what a GPU would say, without a GPU."""
        table = self.make(padding_idx=3)
        with FakeTensorMode(allow_non_fake_inputs=True):
            moved = {name: torch.empty_like(p, device="cuda") for name, p in table.named_parameters()}
            for module in table.modules():
                for name in getattr(module, "device_tensors", ()):
                    setattr(module, name, torch.empty_like(getattr(module, name), device="cuda"))
            ids = torch.zeros(7, 3, dtype=torch.int64, device="cuda")
            vectors = torch.func.functional_call(table, moved, (ids,))
        assert vectors.device.type == "cuda"
        assert vectors.shape == (7, 3, DIM)

    def test_a_default_device_does_not_disturb(self):
        with torch.device("meta"):
            table = self.make()
        self.assert_same(table.to_dense(), self.make().to_dense())

    def test_torch_s_name_for_the_argument(self):
        table, ids = self.make(), self.ids(5)
        self.assert_same(table(input=ids), table(ids))

    def test_autocast(self):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.isfinite(self.make()(self.ids(5))).all()

    def test_has_no_buffers_that_averaging_or_data_parallel_training_would_touch(self):
        assert list(self.make().buffers()) == []

    def test_an_averaged_copy_of_the_model_keeps_facts_whole(self):
        table = self.make()
        averaged = torch.optim.swa_utils.AveragedModel(table, use_buffers=True)
        for _ in range(3):
            with torch.no_grad():
                for parameter in table.parameters():
                    parameter.add_(1)
            averaged.update_parameters(table)
        weights = {name for name, _ in table.named_parameters()}
        for name, tensor in averaged.module.state_dict().items():
            assert torch.equal(tensor, table.state_dict()[name]) == (name not in weights)

    def test_weight_is_answered_with_a_hint(self):
        table = self.make()
        with pytest.raises(AttributeError, match=rf"'{type(table).__name__}' .* 'weight': to_dense\(\) gives"):
            table.weight  # noqa: B018
        assert not hasattr(table, "weight")
        with pytest.raises(AttributeError, match=r"has no attribute 'colour'$"):
            table.colour  # noqa: B018

    # -- randomness ------------------------------------------------------------------------------------------------

    def test_equal_seeds_give_equal_bits(self):
        one, same, other = self.make(seed=1), self.make(seed=1), self.make(seed=2)
        for name, tensor in one.state_dict().items():
            assert torch.equal(tensor, same.state_dict()[name])
        assert not torch.equal(one.to_dense(), other.to_dense())

    @pytest.mark.slow
    def test_any_number_of_threads_gives_the_same(self, num_threads):
        results = []
        for threads in (1, 2, 3):
            num_threads(threads)
            table = self.make()
            gradients = self.gradients(table, self.ids(3000))
            results.append([*table.state_dict().values(), table.to_dense(), *gradients.values()])
        for others in results[1:]:
            for found, expected in zip(others, results[0], strict=True):
                self.assert_same(found, expected)

    def test_starts_with_the_common_mean_and_variance(self):
        tables = torch.stack([self.make(seed=s).to_dense() for s in range(self.num_variance_seeds)]).double()
        sigma = output_variance(DIM) ** 0.5
        assert abs(tables.mean().item()) < 0.03 * sigma
        assert tables.var().item() == pytest.approx(sigma**2, rel=0.06)

    # -- errors ----------------------------------------------------------------------------------------------------

    def test_wrong_ids_are_named(self):
        table = self.make()
        for wrong in (-1, NUM_IDS, 2**40):
            with pytest.raises(IndexError, match=rf"ids must lie in \[0, {NUM_IDS}\), got {wrong}\."):
                table(torch.tensor([0, wrong]))
        for wrong in (torch.tensor([0.5]), torch.tensor([True]), torch.tensor([1], dtype=torch.uint8)):
            kind = str(wrong.dtype).replace(".", r"\.")
            with pytest.raises(TypeError, match=rf"ids must be int32 or int64 in \[0, {NUM_IDS}\), got {kind}"):
                table(wrong)
        with pytest.raises(TypeError, match=r"ids must be a Tensor .* got list"):
            table([1, 2])

    def test_wrong_options_list_the_right_ones(self):
        with pytest.raises(TypeError, match=f"method '{self.method}' has no option 'colour'; its options are"):
            self.make(colour="blue")

    # -- size ------------------------------------------------------------------------------------------------------

    def test_num_params_and_bytes_are_exact(self):
        table = self.make()
        assert table.num_params == sum(parameter.numel() for parameter in table.parameters())
        assert table.nbytes == sum(tensor.nbytes for tensor in table.state_dict().values())
        assert table.nbytes == table.codebook_nbytes + table.pointer_nbytes

    def test_a_budget_is_met_from_below_and_nearly_spent(self):
        if self.method == "full":
            return
        for budget in (60_000, 123_456):
            table = self.make(20_000, DIM, num_params=budget)
            assert table.num_params <= budget * (1.01 if self.method == "dhe" else 1)
            if self.fills_budget:
                assert table.num_params >= 0.98 * budget

    def test_a_budget_that_holds_the_full_table_gives_the_full_table(self):
        for budget in (NUM_IDS * DIM, 10 * NUM_IDS * DIM):
            table = self.make(num_params=budget, padding_idx=2)
            assert isinstance(table, cce.FullEmbedding)
            assert table.num_params == NUM_IDS * DIM
            assert table.padding_idx == 2

    def test_a_budget_too_small_says_the_smallest_that_works(self):
        if self.method == "robe":  # any array will do
            assert self.make(num_params=1).num_params == 1
            return
        with pytest.raises(ValueError, match=rf"at least \d+ for method '{self.method}'") as caught:
            self.make(num_params=1)
        smallest = int(str(caught.value).split("at least ")[1].split()[0])
        assert self.make(num_params=smallest)(self.ids(3)).shape == (3, DIM)
        with pytest.raises(ValueError, match=f"at least {smallest} "):
            self.make(num_params=smallest - 1)

    @pytest.mark.slow
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(
        num_ids=st.integers(1, 3000),
        dim=st.integers(1, 40),
        share=st.floats(0.001, 1.2),
    )
    def test_any_sizes_and_budgets(self, num_ids, dim, share):
        budget = max(1, int(num_ids * dim * share))
        try:
            table = self.make(num_ids, dim, num_params=budget)
        except ValueError as error:
            assert "at least" in str(error)  # noqa: PT017
            return
        assert table.num_params <= min(num_ids * dim, budget) * (1.01 if self.method == "dhe" else 1)
        vectors = table(torch.tensor([0, num_ids - 1, num_ids // 2]))
        assert vectors.shape == (3, dim)
        assert torch.isfinite(vectors).all()

    def test_from_budget_never_weighs_more_than_the_full_table(self):
        table = METHODS[self.method].from_budget(50, 8, num_params=10**6, **self.options)
        assert table.num_params <= 50 * 8


class LinearContract(EmbeddingContract):
    """For methods that are a product `T = H · M`: H is written out and multiplied."""

    def test_is_the_product_of_h_and_m(self):
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

    def test_is_linear_in_its_codebook(self):
        table, ids = self.make().double(), self.ids(20)
        before = table(ids)
        with torch.no_grad():
            table.codebook.mul_(-3)
        torch.testing.assert_close(table(ids), -3 * before)
