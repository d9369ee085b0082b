"""A table as a torch module: copies, states, devices, threads, `torch.compile`, `.export` and `.func`."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim.swa_utils import AveragedModel

from cce.testing.values import DIM, ContractBase, trained


class ModuleTests(ContractBase):
    """What torch does with any module."""

    def test_deepcopy_shares_nothing(self) -> None:
        table, ids = self.make(), self.ids(50)
        twin, before = copy.deepcopy(table), table(ids)
        self.assert_same(twin(ids), before)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.add_(1)
        for name, tensor in twin.state_dict().items():
            assert tensor.numel() == 0 or tensor.data_ptr() != table.state_dict()[name].data_ptr()
        self.assert_same(table(ids), before)

    def test_pickle(self) -> None:
        table, ids = self.make(), self.ids(50)
        self.assert_same(pickle.loads(pickle.dumps(table))(ids), table(ids))
        file = io.BytesIO()
        torch.save(table, file)
        file.seek(0)
        self.assert_same(torch.load(file, weights_only=False)(ids), table(ids))

    def test_a_table_of_another_seed_takes_over_a_state(self) -> None:
        table, other, ids = self.make(), self.make(seed=1), self.ids(50)
        assert not torch.equal(other(ids), table(ids))
        other.load_state_dict(table.state_dict())
        self.assert_same(other(ids), table(ids))

    # -- construction --------------------------------------------------------------------------------------------------

    def test_the_constructor_takes_a_device_and_a_dtype(self) -> None:
        table = self.make(device="meta", dtype=torch.float64)
        assert {(tensor.device.type, tensor.dtype) for tensor in table.parameters()} == {("meta", torch.float64)}
        with torch.device("meta"):
            table = self.make()
        assert all(tensor.is_meta for tensor in table.state_dict().values())
        assert table(self.ids(2, 3).to("meta")).shape == (2, 3, DIM)
        assert {tensor.dtype for tensor in table.parameters()} == {torch.float32}

    def test_reset_parameters_draws_what_the_constructor_does(self) -> None:
        expected, ids = self.make(seed=3), self.ids(50)
        state = copy.deepcopy(expected.state_dict())  # a lookup may count
        for table in (self.make(seed=1), self.make(device="meta").to_empty(device="cpu")):
            table.reset_parameters(torch.Generator().manual_seed(3))
            for name, tensor in state.items():
                assert torch.equal(table.state_dict()[name], tensor), name
            self.assert_same(table(ids), expected(ids))
        table.reset_parameters()
        assert not torch.equal(table(ids), expected(ids))

    def test_a_table_made_on_the_meta_device_takes_over_a_state(self) -> None:
        table, empty, ids = self.make(), self.make(seed=1, device="meta"), self.ids(50)
        empty.load_state_dict(table.state_dict(), assign=True)
        self.assert_same(empty(ids), table(ids))

    # -- transformations -----------------------------------------------------------------------------------------------

    def test_torch_compile(self) -> None:
        torch.compiler.reset()
        table, ids = self.make(padding_idx=0), self.ids(6, 4)
        compiled: Any = torch.compile(table, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(ids), table(ids))
        compiled(ids).square().sum().backward()
        gradients = {name: parameter.grad.clone() for name, parameter in trained(table).items()}
        table.zero_grad()
        table(ids).square().sum().backward()
        for name, parameter in trained(table).items():
            torch.testing.assert_close(gradients[name], parameter.grad)

    def test_torch_export_with_any_number_of_ids(self) -> None:
        table, sizes = self.make(padding_idx=0), torch.export.Dim("n")
        program = torch.export.export(table, (self.ids(6, 4),), dynamic_shapes=({0: sizes},)).module()
        for ids in (self.ids(6, 4), self.ids(9, 4), self.ids(1, 4), self.ids(0, 4)):
            torch.testing.assert_close(program(ids), table(ids))

    def test_vmap_and_functional_gradients(self) -> None:
        table, ids = self.make(), self.ids(5, 3)
        torch.testing.assert_close(torch.vmap(table)(ids), table(ids))
        values = {name: parameter.detach() for name, parameter in table.named_parameters()}

        def loss(values: dict[str, torch.Tensor], ids: torch.Tensor) -> Any:
            return torch.func.functional_call(table, values, (ids,)).square().sum()

        per_sample = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(values, ids)
        whole = torch.func.grad(loss)(values, ids)
        for name, gradient in whole.items():
            torch.testing.assert_close(per_sample[name].sum(0), gradient)

    # -- devices -------------------------------------------------------------------------------------------------------

    def test_runs_on_another_device(self) -> None:
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

    def test_any_number_of_threads_gives_the_same(self) -> None:
        results, before = [], torch.get_num_threads()
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            try:
                table = self.make()
                gradients = self.gradients(table, self.ids(3000))
                results.append([*table.state_dict().values(), table.to_dense(), *gradients.values()])
            finally:
                torch.set_num_threads(before)
        for others in results[1:]:
            for found, expected in zip(others, results[0], strict=True):
                self.assert_same(found, expected)

    # -- buffers and averages ------------------------------------------------------------------------------------------

    def test_has_no_buffers_that_averaging_or_data_parallel_training_would_touch(self) -> None:
        assert list(self.make().buffers()) == []

    def test_an_averaged_copy_of_the_model_keeps_its_index_state(self) -> None:
        table = self.make()
        averaged = AveragedModel(table, use_buffers=True)
        for _ in range(3):
            with torch.no_grad():
                for parameter in table.parameters():
                    parameter.add_(1)
            averaged.update_parameters(table)
        weights = {name for name, _ in table.named_parameters()}
        for name, tensor in averaged.module.state_dict().items():
            assert torch.equal(tensor, table.state_dict()[name]) == (name not in weights)
