import copy

import torch

from cce.indexing import RowMap, count_bits


def test_bits_are_counted_as_python_counts_them():
    words = torch.randint(-(2**63), 2**63 - 1, (1000,), generator=torch.Generator().manual_seed(0))
    assert count_bits(words).tolist() == [(int(word) % 2**64).bit_count() for word in words]


def make_map(num_ids=1000, share=0.3):
    chosen = torch.randperm(num_ids, generator=torch.Generator().manual_seed(1))[: int(share * num_ids)]
    row_map = RowMap(num_ids)
    row_map.insert(chosen[::2])
    row_map.insert(chosen[1::2])
    return row_map, chosen.sort().values


def test_rows_follow_the_order_of_ids_whatever_the_order_in_which_they_came():
    row_map, chosen = make_map()
    expected = torch.zeros(1000, dtype=torch.int64)
    expected[chosen] = torch.arange(1, len(chosen) + 1)
    assert torch.equal(row_map(torch.arange(1000)), expected)
    assert torch.equal(torch.cat(list(row_map.ids())), chosen)
    assert row_map.num_rows == len(chosen)
    assert torch.equal(row_map.ids_of(torch.arange(0, 300, 7)), chosen[::7])


def test_ids_may_come_part_by_part_and_go_again():
    row_map, ids = RowMap(1000), torch.arange(5, 1000, 3)
    for part in (ids[200:], ids[:90], ids[90:200], ids[:0]):
        row_map.insert(part)
    assert torch.equal(row_map(ids), torch.arange(1, len(ids) + 1))
    row_map.keep(ids > 500)
    assert row_map.num_rows == int((ids > 500).sum())
    assert torch.equal(row_map(ids), ((ids > 500) * (ids > 500).cumsum(0)))


def test_the_last_bit_of_a_word_is_an_id_like_any_other():
    row_map = RowMap(200)
    row_map.insert(torch.tensor([63, 127, 191, 64]))
    assert row_map(torch.tensor([62, 63, 64, 127, 191, 199])).tolist() == [0, 1, 2, 3, 4, 0]


def test_a_map_takes_a_bit_and_a_half_an_id():
    assert RowMap(64_000).nbytes == 12_000


def test_a_saved_map_is_the_same_map():
    row_map, _ = make_map()
    other = RowMap(1000)
    other.load_state_dict(row_map.state_dict())
    ids = torch.arange(1000)
    assert torch.equal(other(ids), row_map(ids))
    assert torch.equal(copy.deepcopy(row_map)(ids), row_map(ids))


def test_ranks_follow_the_bits_to_another_device_and_back_to_the_start():
    row_map, _ = make_map()
    assert copy.deepcopy(row_map).to("meta").ranks.is_meta
    row_map.reset_parameters()
    assert not row_map(torch.arange(1000)).any()
    row_map.insert(torch.tensor([70, 5]))
    assert row_map(torch.tensor([5, 6, 70])).tolist() == [1, 0, 2]


def test_all_ids_get_rows_and_nothing_beyond_them():
    for num_ids in (63, 64, 130):
        row_map = RowMap(num_ids)
        row_map.fill()
        assert torch.equal(row_map(torch.arange(num_ids)), torch.arange(1, num_ids + 1))
        assert row_map.num_rows == num_ids
