"""Everybody who reads H reads the same rows: plain torch, compiled loops, frozen tables, pt2, ONNX, the NumPy reader.

One table for each width of pointers and each source of rows. Every row of its codebook holds its own number, so that
vectors say which rows were read. A frozen table reads an id that it does not have as id 0, in every form.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

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
)
from cce.kernels import Layout, Lookup, gather_sum
from cce.schema import Feature, Schema
from cce.serving import numpy_reader
from cce.serving.bundle import write_bundle
from cce.serving.freezing import _widen
from cce.serving.frozen_tables import FrozenRows
from cce.serving.onnx_program import run_onnx, write_onnx
from cce.serving.program import example_inputs, trace
from cce.serving.row_sources import copy_source
from cce.serving.stored_rows import CODEBOOKS, StoredRows

NUM_IDS = 1_001
IDS = torch.arange(NUM_IDS)
UNKNOWN = torch.tensor([-1, NUM_IDS, 2_000, 10**9, -(2**63), 2**63 - 1])
SCHEMA = Schema((Feature("id", NUM_IDS),), ())
NUM_ROWS = {1: 2, 2: 3, 4: 16, 8: 200, 16: 60_000, 32: 70_000}  # by the bits of a pointer
COLUMNS = (1, 3, 4)
TAILS = {"all learned": NUM_IDS, "hashed tail": 600, "shared tail": 600, "hashed": 0}


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def learned(bits, num_columns, tail):
    """A source whose pointers take each width, with and without ids that have none, and the rows that it names."""
    num_rows, num_learned = NUM_ROWS[bits], TAILS[tail]
    sizes = {"num_learned": num_learned, "share_tail": tail == "shared tail"}
    assignments = Assignments(NUM_IDS, num_columns, num_rows, generator=draw(), **sizes)
    assert assignments.pointers.bits == bits
    rows = torch.randint(0, num_rows, (NUM_IDS, num_columns), generator=draw(bits))
    rows[:2] = torch.tensor([[num_rows - 1], [0]])
    rows[num_learned:] = 0 if tail == "shared tail" else assignments.hash(IDS[num_learned:])
    if num_learned:
        assignments.write(IDS[:num_learned], rows[:num_learned])
    first_rows = range(0, num_columns * num_rows, num_rows)
    return LearnedRows(assignments, range(num_columns), first_rows), rows + torch.tensor(list(first_rows))


def cases():
    """Sources by name, with the rows of all ids where they are known beforehand."""
    found = {
        f"{bits} bits, {columns} columns, {tail}": learned(bits, columns, tail)
        for bits, columns, tail in product(NUM_ROWS, COLUMNS, TAILS)
        if columns == 4 or tail in ("all learned", "hashed tail")
    }
    digits = torch.stack([IDS % 26, IDS // 26 % 41], dim=1)
    return found | {
        "own": (OwnRow(NUM_IDS), IDS.unsqueeze(1)),
        "hashed": (HashedRows(MultiplyShift(3, 50, generator=draw()), range(3), (0, 50, 100)), None),
        "digits": (DigitRows(QuotientRemainder((26, 41), NUM_IDS)), digits + torch.tensor([0, 26])),
        "circular": (CircularPlaces(MultiplyShift(1, 333, generator=draw()), 6, 4), None),
    }


SOURCES = cases()
EXPORTED = [  # into one program: each width, each tail, each other source
    *(name for name in SOURCES if "3 columns, all learned" in name or "4 columns, hashed tail" in name),
    *("8 bits, 4 columns, shared tail", "16 bits, 4 columns, hashed", "own", "hashed", "digits", "circular"),
]


class Table(nn.Module):
    """A trained table of one source; each of its rows holds its number."""

    sparse, check_ids = False, None

    def __init__(self, source):
        super().__init__()
        slots = source.describe()
        num_rows = max(slot.first_row + slot.num_rows for slot in slots)
        self.codebook = nn.Parameter(torch.arange(num_rows, dtype=torch.float32).unsqueeze(1))
        self._layout = Layout(NUM_IDS, len(slots), 1, 1, num_rows, [source])

    def layout(self):
        return self._layout


def frozen_table(name, precision="float32", padding_idx=None):
    source, _ = SOURCES[name]
    table = Table(source)
    layout = replace(table.layout(), sources=[copy_source(source)], padding_idx=padding_idx)
    size = (NUM_IDS, layout.dim, padding_idx)
    tables = [(slot.first_row, slot.num_rows) for slot in source.describe()]
    return FrozenRows(size, StoredRows.of(table.codebook, precision, tables), layout)


@pytest.fixture(scope="module")
def expected():
    """The rows of all ids, as plain torch names them."""
    return {name: source.rows(IDS).float() for name, (source, _) in SOURCES.items()}


def test_the_definition_names_the_rows_that_were_written(expected):
    known = {name: rows for name, (_, rows) in SOURCES.items() if rows is not None}
    assert len(known) == 6 * 8 + 2
    for name, rows in known.items():
        assert torch.equal(expected[name], rows.float()), name


@pytest.mark.parametrize("name", SOURCES)
def test_training_and_frozen_tables_read_the_rows_of_the_definition(name, expected):
    table, frozen = Table(SOURCES[name][0]), frozen_table(name)
    assert torch.equal(gather_sum(table.codebook, table.layout().rows(IDS)), expected[name])
    assert torch.equal(Lookup([table])(IDS), expected[name])
    assert torch.equal(frozen.embed(IDS), expected[name])
    assert torch.equal(frozen(IDS), expected[name])
    assert torch.equal(frozen(IDS.int().view(7, 143)).view(NUM_IDS, -1), expected[name])
    assert torch.equal(frozen(UNKNOWN), expected[name][:1].expand(len(UNKNOWN), -1))
    _widen(frozen)
    assert torch.equal(frozen(IDS), expected[name])
    assert torch.equal(Lookup([table])(IDS), expected[name])  # the trained table's own pointers are as they were
    assert bool(frozen._lookup) is compiled.available


@pytest.mark.parametrize("precision", [name for name in CODEBOOKS if name != "float32"])
def test_compiled_loops_and_plain_torch_agree_to_the_bit_in_every_precision(precision):
    for name in SOURCES:
        for padding_idx in (None, 3):
            frozen = frozen_table(name, precision, padding_idx)
            vectors = frozen.embed(IDS)
            vectors[3] = vectors[3] if padding_idx is None else 0
            assert torch.equal(frozen(IDS), vectors), name
            assert frozen(IDS).dtype == torch.float32


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


@pytest.mark.parametrize("name", SOURCES)
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
