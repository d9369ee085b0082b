"""Learned pointers: small, exact and saved."""

import re

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cce.indexing import Assignments, MultiplyShift, PointerStore, keep_on_cpu
from cce.indexing.ids import BLOCK, blocks
from helpers.draws import seeded


def make(num_embeddings=50, num_columns=3, num_rows=300, *, seed=0, **options):
    return Assignments(num_embeddings, num_columns, num_rows, generator=seeded(seed), **options)


def hashed(seed=0, num_columns=3, num_rows=300):
    return MultiplyShift(num_columns, num_rows, generator=seeded(seed))


@pytest.mark.parametrize("num_rows", [16, 300])
def test_at_the_start_all_ids_point_where_a_hash_says(num_rows):
    assignments = make(num_rows=num_rows)
    assert torch.equal(assignments(torch.arange(50)), hashed(num_rows=num_rows)(torch.arange(50)))


@pytest.mark.parametrize("id_dtype", [torch.int32, torch.int64])
def test_the_pointers_that_are_written_are_read(id_dtype):
    assignments = make()
    rows = torch.randint(0, 300, (20, 3), generator=seeded(1))
    assignments.write(torch.arange(20), rows)
    answered = assignments(torch.arange(50, dtype=id_dtype).flip(0)).flip(0)
    assert torch.equal(answered[:20], rows)
    assert torch.equal(answered[20:], make()(torch.arange(20, 50)))
    assert assignments.nbytes == 172  # 168.75 and padding


@pytest.mark.parametrize(("num_ids", "size", "lengths"), [(0, 4, []), (3, 4, [3]), (8, 4, [4, 4]), (9, 4, [4, 4, 1])])
def test_blocks_walk_all_ids_in_order(num_ids, size, lengths):
    walked = list(blocks(num_ids, size))
    assert [len(ids) for ids in walked] == lengths
    assert [i for ids in walked for i in ids.tolist()] == list(range(num_ids))


@pytest.mark.slow
def test_a_vocabulary_longer_than_a_block_is_filled_to_its_end():
    num_ids = BLOCK + 3
    assignments = make(num_ids, 1, 200)
    ids = torch.tensor([0, BLOCK - 1, BLOCK, BLOCK + 2])
    assert torch.equal(assignments(ids), hashed(num_columns=1, num_rows=200)(ids))
    assert assignments.nbytes == num_ids + 3


@pytest.mark.parametrize("num_rows", [16, 300])
def test_no_cast_touches_the_pointers(num_rows):
    assignments = make(num_rows=num_rows)
    before, place = assignments.pointers.words.clone(), assignments.pointers.words.data_ptr()
    assignments.to(torch.float16).half().double().bfloat16().float()
    assert torch.equal(assignments.pointers.words, before)
    assert assignments.pointers.words.data_ptr() == place


@pytest.mark.parametrize("stays", [False, True])
def test_pointers_follow_to_another_device_unless_they_are_asked_to_stay(stays):
    """Of all devices that this build has none of, torch pretends to compute on "lazy" alone."""
    assignments, away = make(), torch.device("lazy:0")
    if stays:
        keep_on_cpu(assignments)
    pretended = FakeTensorMode(allow_non_fake_inputs=True)
    assignments.pointers.words = pretended.from_tensor(assignments.pointers.words)
    with pretended:
        assignments._apply(lambda tensor: pretended.from_tensor(tensor).to(away))
        assert assignments(torch.arange(50, device=away)).device == away  # it mixes no devices, or torch would raise
    assert assignments.pointers.words.device == (torch.device("cpu") if stays else away)


def test_on_the_meta_device_there_are_no_pointers_until_they_are_drawn():
    with torch.device("meta"):
        assignments = make()
    assert assignments.pointers.is_meta
    assert assignments.nbytes == make().nbytes
    assignments.to_empty(device="cpu").reset_parameters(seeded())
    assert torch.equal(assignments.pointers.words, make().pointers.words)
    assert assignments.to("meta").pointers.is_meta


def test_a_state_is_assigned_to_the_meta_device_but_not_copied_to_it():
    assignments = make(device="meta")
    assignments.load_state_dict(make(seed=1).state_dict())
    assert assignments.pointers.is_meta
    assignments.load_state_dict(make(seed=1).state_dict(), assign=True)
    assert torch.equal(assignments(torch.arange(50)), make(seed=1)(torch.arange(50)))


@pytest.mark.parametrize(
    ("other", "theirs"),
    [
        ({"num_embeddings": 49}, "(49, 3) of 9 bits"),
        ({"num_columns": 2}, "(50, 2) of 9 bits"),
        ({"num_embeddings": 100, "num_rows": 256}, "(100, 3) of 8 bits"),
    ],
)
def test_a_checkpoint_of_other_sizes_is_refused_with_both(other, theirs):
    assignments = make()
    before = assignments.pointers.words.clone()
    message = f"pointers mismatch for pointers: the checkpoint has {theirs}, the module (50, 3) of 9 bits."
    with pytest.raises(RuntimeError, match=re.escape(message)):
        assignments.load_state_dict(make(**other, seed=1).state_dict())
    assert torch.equal(assignments.pointers.words, before)


def test_a_checkpoint_without_pointers_is_refused_by_name_or_listed():
    module = torch.nn.ModuleDict({"table": make()})
    with pytest.raises(RuntimeError, match=re.escape('Missing key(s) in state_dict: "table.pointers"')):
        module.load_state_dict({})
    assert module.load_state_dict({}, strict=False).missing_keys == ["table.pointers"]


def test_pointers_of_another_number_of_rows_replace_the_old_ones():
    assignments = make()
    assert (assignments.num_rows, assignments.pointers.bits) == (300, 9)
    assignments.replace(PointerStore(50, 3, 4))
    assert (assignments.num_rows, assignments.pointers.bits) == (4, 2)
    assert not assignments(torch.arange(50)).any()
    assignments.resize(17)
    assert (assignments.num_rows, assignments.pointers.bits) == (17, 5)


def test_sharing_a_model_shares_its_pointers_and_no_other_move_does():
    model = torch.nn.ModuleDict({"table": make(num_rows=16)})
    before = model["table"](torch.arange(50))
    model.half().to("cpu")
    assert not model["table"].pointers.is_shared
    model.share_memory()
    assert model["table"].pointers.is_shared
    assert torch.equal(model["table"](torch.arange(50)), before)
