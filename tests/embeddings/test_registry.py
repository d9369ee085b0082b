"""Any method from one call: by name, with a budget said in either way."""

import pytest
import torch

import cce
from cce.budget import FULL_SIZED
from cce.embeddings import METHODS
from cce.embeddings.sizing import MAP_BYTES


def same_state(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# -- names -------------------------------------------------------------------------------------------------------------


def test_each_name_gives_the_class_that_carries_it():
    for name, kind in METHODS.items():
        table = cce.create_embedding(name, 500, 16, compression=1 if name in FULL_SIZED else 3, seed=0)
        assert type(table) is kind
        assert table.method == kind.method == name


class Outside(cce.embeddings.HashingTrickEmbedding):
    method = "outside"


def test_a_class_may_stand_in_place_of_a_name():
    by_class, by_name = (cce.create_embedding(kind, 500, 8, num_params=80, seed=0) for kind in (Outside, "hash"))
    assert type(by_class) is Outside
    assert same_state(by_class, by_name)
    assert type(cce.create_embedding(Outside, 10, 8, num_params=80)) is cce.embeddings.FullEmbedding
    with pytest.raises(ValueError, match="num_params must be at least 8 for method 'outside'"):
        cce.create_embedding(Outside, 500, 8, num_params=7)
    with pytest.raises(ValueError, match=r"method must be one of full, .*; got <class 'torch.nn.*Embedding'>"):
        cce.create_embedding(torch.nn.Embedding, 500, 8, num_params=80)


# -- budgets -----------------------------------------------------------------------------------------------------------


def test_num_params_and_compression_are_two_ways_to_say_the_same():
    by_count = cce.create_embedding("hash", 1000, 16, num_params=1600, seed=0)
    by_ratio = cce.create_embedding("hash", 1000, 16, compression=10, seed=0)
    assert by_count.num_params == by_ratio.num_params == 1600
    assert same_state(by_count, by_ratio)


def test_a_budget_that_holds_the_full_table_gives_it_and_keeps_the_common_options():
    table = cce.create_embedding("cce", 10, 4, num_params=40, num_columns=2, padding_idx=-1, sparse=True, seed=0)
    assert type(table) is cce.embeddings.FullEmbedding
    assert (table.padding_idx, table.sparse) == (9, True)
    assert same_state(table, cce.create_embedding("full", 10, 4, seed=0))


# -- randomness, device, type ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_is_a_new_generator_with_that_seed(method):
    budget = {} if method in FULL_SIZED else {"compression": 4}
    seeded = cce.create_embedding(method, 300, 8, seed=3, **budget)
    generated = cce.create_embedding(method, 300, 8, generator=torch.Generator().manual_seed(3), **budget)
    assert same_state(seeded, generated)


@pytest.mark.parametrize("method", METHODS)
def test_a_generator_or_seed_leaves_torchs_own_randomness_alone(method):
    budget = {} if method in FULL_SIZED else {"compression": 4}
    before = torch.get_rng_state()
    cce.create_embedding(method, 300, 8, seed=3, **budget)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_goes_on_from_table_to_table():
    g = torch.Generator().manual_seed(0)
    one, two = (cce.create_embedding("hash", 300, 8, compression=4, generator=g) for _ in range(2))
    assert not torch.equal(one.codebook, two.codebook)


def test_without_either_torchs_own_seed_decides():
    tables = []
    with torch.random.fork_rng():
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            tables.append(cce.create_embedding("cce", 300, 8, compression=4))
    assert same_state(tables[0], tables[1])
    assert not same_state(tables[0], tables[2])


def test_a_huge_table_on_the_meta_device_takes_no_memory():
    table = cce.create_embedding("cce", 2**36, 8, num_params=2**20, device="meta")
    assert table.pointer_nbytes >= 2**36 * MAP_BYTES // 64
    assert all(tensor.is_meta for tensor in table.state_dict().values())


# -- options -----------------------------------------------------------------------------------------------------------


def test_options_reach_the_class():
    assert cce.create_embedding("cce", 300, 8, compression=4, num_columns=8).num_columns == 8
    assert cce.create_embedding("hash", 300, 8, compression=4, signed=True).sign is not None
    table = cce.create_embedding("ce-concat", 300, 8, compression=4, split="quotient-remainder", padding_idx=2)
    assert table.split.rows_per_column[0] != table.split.rows_per_column[-1]
    assert table.padding_idx == 2
