"""The compiled lookup of codes has the bits of plain torch, on any number of threads."""

import pytest
import torch

import cce
from cce import compiled
from cce.embeddings import quantized
from cce.kernels.cpu import codes

pytestmark = pytest.mark.skipif(not compiled.available, reason="numba is not installed")

OPTIONS = [
    {},
    {"bits": 16, "scale_by": "column"},
    {"num_learned": 300, "scale_by": "group"},
    {"num_learned": 0, "num_shared": 7},
    {"num_learned": 999},
]


def table_of(**options):
    return cce.QuantizedEmbedding(1000, 6, generator=torch.Generator().manual_seed(0), **options)


def some_ids(count):
    return torch.randint(0, 1000, (count,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("count", [0, 1, 5000])
def test_rows_and_vectors_have_the_bits_of_plain_torch(options, count, monkeypatch, num_threads):
    monkeypatch.setattr(codes, "PARALLEL_VALUES", 1)
    table, ids = table_of(**options), some_ids(count)
    with torch.no_grad():
        table.scale.mul_(torch.rand(table.scale.shape, generator=torch.Generator().manual_seed(2)) + 0.5)
    expected = table.codes.values[table.rows(ids)].float() * table.scale_of(table.rows(ids))
    for threads in (1, 2, 3):
        num_threads(threads)
        rows, vectors = codes.look_up_codes(ids, table.code_rows())
        assert torch.equal(rows, table.rows(ids))
        assert torch.equal(vectors, expected)


def test_tables_in_inference_are_looked_up_by_it(monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return codes.look_up_codes(*arguments)

    monkeypatch.setattr(quantized, "look_up_codes", counted)
    table, ids = table_of(), some_ids(5)
    table(ids)  # the scale has a gradient
    table.double()(ids)
    assert len(calls) == 0
    with torch.no_grad():
        table.float()(ids)
        assert len(calls) == 1
        table.check_ids = False  # then plain torch is what rejects an id that there is not
        with pytest.raises(IndexError):
            table(torch.tensor([1000]))
        table.check_ids = None
    assert len(calls) == 1
