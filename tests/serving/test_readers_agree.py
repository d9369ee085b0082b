"""Everybody who reads H reads the same rows: plain torch, compiled loops, frozen tables, pt2, ONNX, the NumPy reader.

One table for each width of pointers and each source of rows. Every row of its codebook holds its own number, from 1 on,
so that vectors say which rows were read. Behind a map, ids without a row read zeros. A frozen table reads an id that it
does not have as id 0, in every form. `cce` tables are read in both of their forms.
"""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

import cce
from cce import compiled
from cce.indexing import (
    Assignments,
    CircularPlaces,
    DigitRows,
    HashedRows,
    LearnedRows,
    MultiplyShift,
    OwnRow,
    PointerStore,
    QuotientRemainder,
    RowMap,
)
from cce.kernels import Layout, Lookup, gather_sum
from cce.schema import Feature, Schema
from cce.serving import numpy_reader
from cce.serving.freezing import copy_source, freeze_table, write_bundle
from cce.serving.frozen_tables import FrozenRows, StoredRows
from cce.serving.program import example_inputs, run_onnx, trace, write_onnx
from helpers.final_form import finalize_table

NUM_IDS = 1_001
IDS = torch.arange(NUM_IDS)
UNKNOWN = torch.tensor([-1, NUM_IDS, 2_000, 10**9, -(2**63), 2**63 - 1])
SCHEMA = Schema((Feature("id", NUM_IDS),), ())
NUM_ROWS = {bits: 2**bits - bits // 4 for bits in range(1, 17)} | {32: 70_000}  # by the bits of a pointer
COMMON = (4, 8, 10, 16, 32)  # bits with every number of columns; the others have three columns
COLUMNS = (1, 3, 4)
WITH_ROWS = IDS[torch.randperm(NUM_IDS, generator=torch.Generator().manual_seed(1)) < 400]  # in the map


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def learned(bits, num_columns):
    """A source whose pointers take each width, and the rows that it names."""
    num_rows = NUM_ROWS[bits]
    assignments = Assignments(NUM_IDS, num_columns, num_rows, generator=draw())
    assert assignments.pointers.bits == bits
    rows = torch.randint(0, num_rows, (NUM_IDS, num_columns), generator=draw(bits))
    rows[:2] = torch.tensor([[num_rows - 1], [0]])
    assignments.write(IDS, rows)
    first_rows = range(0, num_columns * num_rows, num_rows)
    return LearnedRows(assignments, range(num_columns), first_rows), rows + torch.tensor(list(first_rows))


def mapped(bits, num_columns):
    """A source whose pointers are those of the ids that a map has."""
    num_rows, first_rows = NUM_ROWS[bits], range(0, num_columns * NUM_ROWS[bits], NUM_ROWS[bits])
    store = PointerStore(len(WITH_ROWS), num_columns, num_rows)
    pointers = torch.randint(0, num_rows, (len(WITH_ROWS), num_columns), generator=draw(bits))
    store.write(0, pointers)
    rows = torch.full((NUM_IDS, num_columns), -1)
    rows[WITH_ROWS] = pointers + torch.tensor(list(first_rows))
    return LearnedRows(Assignments.of(store), range(num_columns), first_rows), rows


def map_of(name):
    """The map before a source, if it has one."""
    if "behind a map" not in name:
        return None
    row_map = RowMap(NUM_IDS)
    row_map.insert(WITH_ROWS)
    return row_map


def cases():
    """Sources by name, with the rows of all ids where they are known beforehand."""
    found = {
        f"{bits} bits, {columns} columns": learned(bits, columns)
        for bits, columns in product(NUM_ROWS, COLUMNS)
        if bits in COMMON or columns == 3
    }
    found |= {
        f"{bits} bits, {columns} columns, behind a map": mapped(bits, columns)
        for bits, columns in product(NUM_ROWS, COLUMNS)
        if bits in COMMON or columns == 3
    }
    digits = torch.stack([IDS % 26, IDS // 26 % 41], dim=1)
    return found | {
        "own": (OwnRow(NUM_IDS), IDS.unsqueeze(1)),
        "hashed": (HashedRows(MultiplyShift(3, 50, generator=draw()), range(3), (0, 50, 100)), None),
        "digits": (DigitRows(QuotientRemainder((26, 41), NUM_IDS)), digits + torch.tensor([0, 26])),
        "circular": (CircularPlaces(MultiplyShift(1, 333, generator=draw()), 6, 4), None),
    }


SOURCES = cases()
EXPORTED = [  # into one program: each width, each other source
    *(f"{bits} bits, 3 columns" for bits in NUM_ROWS),
    *("1 bits, 3 columns, behind a map", "8 bits, 4 columns, behind a map", "16 bits, 4 columns"),
    *("own", "hashed", "digits", "circular"),
]


FORMS = ("int8 rows", "int8 rows, trained unseen", "pointers", "pointers, trained unseen")
EXPORTED += FORMS


@cache
def cce_table(form):
    """A `cce` table that was trained, in one of its forms."""
    unseen = "trained" if "trained" in form else "neutral"
    counts = torch.zeros(NUM_IDS, dtype=torch.int64).index_fill_(0, WITH_ROWS, 2)
    table = cce.embeddings.CCEEmbedding(NUM_IDS, 8, counts=counts, unseen=unseen, generator=draw())
    optimizer = cce.optim.Adam(table, lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        (table(IDS) - torch.randn(NUM_IDS, 8, generator=draw(step))).square().sum().backward()
        optimizer.step()
    if "pointers" in form:
        finalize_table(table, generator=draw())
    return table


class Table(nn.Module):
    """A trained table of one source; each of its rows holds its number, from 1 on."""

    sparse = False

    def __init__(self, name):
        super().__init__()
        source, _ = SOURCES[name]
        slots = source.describe()
        num_rows = max(slot.first_row + slot.num_rows for slot in slots)
        self.codebook = nn.Parameter(torch.arange(1, num_rows + 1, dtype=torch.float32).unsqueeze(1))
        self._layout = Layout(NUM_IDS, len(slots), 1, 1, num_rows, [source], row_map=map_of(name))

    def layout(self):
        return self._layout


def frozen_table(name, padding_idx=None):
    if name in FORMS:
        return freeze_table(cce_table(name))
    source, table = SOURCES[name][0], Table(name)
    layout = replace(table.layout(), sources=[copy_source(source)], padding_idx=padding_idx)
    return FrozenRows(StoredRows(table.codebook.detach().clone()), layout)


@pytest.fixture(scope="module")
def expected():
    """The vectors of all ids, by the rows that plain torch names."""
    found = {}
    for name in SOURCES:
        layout = Table(name).layout()
        found[name] = layout.rows(IDS).squeeze(2).float() + 1
        if layout.row_map is not None:
            found[name][layout.left_out(IDS)] = 0
    return found | {name: cce_table(name)(IDS).detach() for name in FORMS}


def test_the_definition_names_the_rows_that_were_written(expected):
    known = {name: rows for name, (_, rows) in SOURCES.items() if rows is not None}
    assert len(known) == 5 * (3 + 3) + 12 * (1 + 1) + 2
    for name, rows in known.items():
        assert torch.equal(expected[name], rows.float() + 1), name


def test_a_cce_table_has_zeros_or_one_row_for_all_other_ids_in_both_forms(expected):
    others = ~torch.isin(IDS, WITH_ROWS)
    for name, vectors in expected.items():
        if name in FORMS:
            assert len(vectors[WITH_ROWS].unique(dim=0)) > 100
            assert len(vectors[others].unique(dim=0)) == 1
            assert bool(vectors[others].any()) is ("trained" in name)
            assert torch.equal(frozen_table(name)(IDS), vectors)
            assert torch.equal(frozen_table(name).embed(IDS), vectors)
            assert torch.equal(frozen_table(name)(UNKNOWN), vectors[:1].expand(len(UNKNOWN), -1))


def test_a_frozen_cce_table_holds_a_map_and_rows_of_the_ids_that_have_them():
    num_words, num_rows = -(-NUM_IDS // 64), len(WITH_ROWS)
    rows, final = (frozen_table(name) for name in ("int8 rows", "pointers"))
    assert rows.nbytes == 12 * num_words + 8 * num_rows + 8 * 4  # a scale for each value of a vector
    assert final.nbytes == 12 * num_words + 4 * num_rows + 3 + 4 * 256 * 2 * 4


@pytest.mark.parametrize("name", SOURCES)
def test_training_and_frozen_tables_read_the_rows_of_the_definition(name, expected):
    table, frozen = Table(name), frozen_table(name)
    vectors = gather_sum(table.codebook, table.layout().rows(IDS))
    left_out = table.layout().left_out(IDS)
    vectors = vectors if left_out is None else vectors.masked_fill(left_out.unsqueeze(1), 0)
    assert torch.equal(vectors, expected[name])
    assert torch.equal(Lookup([table])(IDS), expected[name])
    assert torch.equal(frozen.embed(IDS), expected[name])
    assert torch.equal(frozen(IDS), expected[name])
    assert torch.equal(frozen(IDS.int().view(7, 143)).view(NUM_IDS, -1), expected[name])
    assert torch.equal(frozen(UNKNOWN), expected[name][:1].expand(len(UNKNOWN), -1))
    assert bool(frozen._lookup) is compiled.available


def test_compiled_loops_and_plain_torch_agree_to_the_bit_on_padding():
    for name in SOURCES:
        frozen = frozen_table(name, padding_idx=3)
        vectors = frozen.embed(IDS)
        vectors[3] = 0
        assert torch.equal(frozen(IDS), vectors), name


class Program(nn.Module):
    """Tables side by side, as a program that takes ids by name."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(frozen_table(name) for name in EXPORTED)

    def forward(self, inputs):
        ids = inputs["ids"].squeeze(1)
        return torch.cat([table(ids) for table in self.tables], dim=1)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """What was exported, as torch loads it again, with the folder that it was written to."""
    folder = tmp_path_factory.mktemp("program")
    torch.export.save(trace(Program(), SCHEMA), folder / "model.pt2")
    return torch.export.load(folder / "model.pt2"), folder


def check(run, expected):
    rows = torch.cat([expected[name] for name in EXPORTED], dim=1)
    assert torch.equal(run({"ids": IDS.unsqueeze(1)}), rows)
    assert torch.equal(run({"ids": UNKNOWN.unsqueeze(1)}), rows[:1].expand(len(UNKNOWN), -1))


@pytest.mark.slow
def test_an_exported_program_reads_them_in_torch(program, expected):
    check(program[0].module(), expected)


@pytest.mark.slow
def test_an_exported_program_reads_them_in_onnxruntime(program, expected):
    pytest.importorskip("onnxruntime")
    write_onnx(program[1] / "model.onnx", program[0], example_inputs(SCHEMA))
    check(run_onnx(program[1] / "model.onnx"), expected)


@pytest.mark.parametrize("name", [*SOURCES, *FORMS])
def test_the_numpy_reader_reads_them(name, expected, tmp_path):
    write_bundle(tmp_path / "table.safetensors", frozen_table(name))
    table = numpy_reader.open_bundle(tmp_path / "table.safetensors")["table"]
    np.testing.assert_array_equal(table.vectors(np.arange(NUM_IDS)), expected[name].numpy())
    np.testing.assert_array_equal(table.vectors(UNKNOWN.numpy()), expected[name][:1].expand(len(UNKNOWN), -1).numpy())
    large = np.array([2**64 - 1, 2**63], np.uint64)
    np.testing.assert_array_equal(table.vectors(large), expected[name][:1].expand(2, -1).numpy())


def test_a_store_of_every_width_is_frozen_without_a_copy():
    for bits, num_rows in NUM_ROWS.items():
        store = PointerStore(NUM_IDS, 2, num_rows)
        source = copy_source(LearnedRows(Assignments.of(store), range(2), (0, num_rows)))
        assert source.assignments.pointers is store
        assert store.bits == bits
