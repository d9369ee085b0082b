"""Compiled lookups of frozen tables, held to plain torch to the bit."""

import copy

import pytest
import torch

from cce import compiled
from cce.serving import freeze_table
from cce.serving.frozen_tables import RowLookup, are_readable
from helpers.frozen import LINEAR, NUM_IDS, make_table

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops are off")
SUITED = [case for case in LINEAR if case[0] != "ce-mult" and not {"signed", "weighted", "bits"} & set(case[1])]
IDS = torch.randint(0, NUM_IDS, (300,), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("method", "options"), SUITED, ids=str)
def test_vectors_are_those_of_plain_torch_to_the_bit(method, options):
    table = freeze_table(make_table(method, options))
    plain = table.embed(IDS)
    if table.padding_idx is not None:
        plain = plain.masked_fill((table.padding_idx == IDS).unsqueeze(-1), 0)
    assert torch.equal(table(IDS), plain)
    assert RowLookup.suits([table])


FLOATS = [("cce", {}), ("full", {"padding_idx": 2}), ("cce-paper", {}), ("pq", {})]
INT8 = [("cce", {"int8": True}), ("quantized", {"padding_idx": 2}), ("cce", {"int8": True, "padding_idx": 3})] * 2


@pytest.mark.parametrize("cases", [FLOATS, INT8[:4]], ids=["float32", "int8"])
def test_tables_of_several_widths_are_looked_up_together(cases):
    tables = [freeze_table(make_table(*case)) for case in cases]
    ids = IDS.view(75, 4)
    for given in (ids, ids.T.contiguous().T, ids.int()):
        vectors = RowLookup(tables)(given, (75, 64))
        expected = torch.cat([table(given[:, place].clone()) for place, table in enumerate(tables)], dim=1)
        assert torch.equal(vectors, expected)


def test_large_batches_are_shared_out_among_threads():
    table, before = freeze_table(make_table("cce", {})), torch.get_num_threads()
    ids = IDS.repeat(100)  # more values than one thread is given
    torch.set_num_threads(2)
    try:
        assert torch.equal(table(ids), table(IDS).repeat(100, 1))
        assert torch.equal(table(torch.cat([ids, torch.tensor([600])]))[-1:], table(torch.tensor([0])))
    finally:
        torch.set_num_threads(before)


def test_a_copy_and_a_moved_table_have_addresses_of_their_own():
    table = freeze_table(make_table("cce", {}))
    expected = table(IDS)
    other = copy.deepcopy(table)
    del table
    assert torch.equal(other(IDS), expected)
    other.to(torch.float64)
    assert not RowLookup.suits([other])
    torch.testing.assert_close(other(IDS), expected, rtol=0, atol=0)


def test_what_compiled_loops_cannot_read_is_left_to_torch():
    assert are_readable(IDS)
    assert not are_readable(torch.nn.Parameter(torch.zeros(2)))
    assert not are_readable([1, 2])
    assert not are_readable(IDS.to("meta"))
    assert not RowLookup.suits([])
    assert not RowLookup.suits([freeze_table(make_table("ce-mult", {}))])
    mixed = [freeze_table(make_table("cce", {"int8": is_int8})) for is_int8 in (False, True)]
    assert not RowLookup.suits(mixed)
