"""Index state is saved and moved, but neither trained nor averaged nor sent."""

import copy
import io
import pickle

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cce.indexing.state import IndexModule


class Pointers(IndexModule):
    index_state = ("table", "seeds")
    device_tensors = ("seeds",)

    def __init__(self, value=0):
        super().__init__()
        self.table = torch.full((3, 2), value, dtype=torch.int16)
        self.seeds = torch.full((4,), value)


def test_index_state_is_neither_parameters_nor_buffers_but_in_state_dict():
    module = Pointers(5)
    assert list(module.parameters()) == list(module.buffers()) == []
    assert set(module.state_dict()) == {"table", "seeds"}
    assert module.nbytes == 3 * 2 * 2 + 4 * 8


def test_index_state_loads_in_place_and_inside_other_modules():
    outer, source = torch.nn.Sequential(Pointers(1)), torch.nn.Sequential(Pointers(9))
    address = outer[0].table.data_ptr()
    outer.load_state_dict(source.state_dict())
    assert outer[0].table.data_ptr() == address
    assert torch.equal(outer[0].table, source[0].table)
    assert torch.equal(outer[0].seeds, source[0].seeds)


def test_missing_or_wrong_index_state_is_named():
    state = Pointers().state_dict()
    del state["table"]
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "table"'):
        Pointers().load_state_dict(state)
    state = Pointers().state_dict()
    state["table"] = torch.zeros(3, 3, dtype=torch.int16)
    with pytest.raises(RuntimeError, match=r"table mismatch for table: the checkpoint has \(3, 3\) of torch.int16"):
        Pointers().load_state_dict(state)
    state["table"] = torch.zeros(3, 2, dtype=torch.uint8)
    with pytest.raises(
        RuntimeError, match=r"the checkpoint has \(3, 2\) of torch.uint8, the module \(3, 2\) of torch.int16"
    ):
        Pointers().load_state_dict(state)


def test_only_device_tensors_follow_and_no_type_changes():
    module = Pointers()
    with FakeTensorMode(allow_non_fake_inputs=True):
        module.to_empty(device="cuda")
    assert (module.seeds.device.type, module.table.device.type) == ("cuda", "cpu")
    module = Pointers().half()
    assert (module.seeds.dtype, module.table.dtype) == (torch.int64, torch.int16)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_share_nothing(duplicate):
    module = Pointers(30_000)
    twin = duplicate(module)
    assert torch.equal(twin.table, module.table)
    twin.table.fill_(1)
    assert int(module.table[0, 0].item()) == 30_000


def test_torch_save_of_the_state():
    file = io.BytesIO()
    torch.save(Pointers(30_000).state_dict(), file)
    file.seek(0)
    module = Pointers()
    module.load_state_dict(torch.load(file, weights_only=True))
    assert int(module.table[0, 0].item()) == 30_000


def test_all_index_state_goes_to_the_meta_device_and_comes_back_as_zeros():
    module = Pointers(7).to("meta")
    assert (module.seeds.device.type, module.table.device.type) == ("meta", "meta")
    assert module.nbytes == Pointers().nbytes
    module.to_empty(device="cpu").reset_parameters()
    assert not any(tensor.int().any() for tensor in module.state_dict().values())


def test_device_tensors_are_assigned_where_the_module_s_own_are_on_the_meta_device():
    state = Pointers(9).state_dict()
    module = Pointers(1).to("meta")
    module.load_state_dict(state, assign=True)
    assert module.seeds is state["seeds"]
    assert torch.equal(module.table, state["table"])
    assert module.table is not state["table"]  # pointers stay where they are: in memory of their own, or in a file


def test_the_version_counts_what_is_set_but_not_modes_of_training():
    module = Pointers()
    before = module.version.count
    module.eval().train()
    assert module.version.count == before
    module.seeds = module.seeds.clone()
    assert module.version.count == before + 1
