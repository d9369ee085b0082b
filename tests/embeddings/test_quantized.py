from typing import ClassVar

import pytest
import torch

import cce
from cce.embeddings import METHODS
from cce.indexing import MultiplyShift
from cce.testing import EmbeddingContract


def table_of(num_ids=1000, dim=16, **options):
    return cce.QuantizedEmbedding(num_ids, dim, generator=torch.Generator().manual_seed(0), **options)


class TestQuantized(EmbeddingContract):
    table_class = cce.QuantizedEmbedding
    has_sparse = False

    def reference(self, table, x):
        row = x if x < table.num_learned else table.num_learned + int(table.hash(torch.tensor(x)))
        return table.codes.values[row] * table.scale[0]

    def test_num_params_and_bytes_are_exact(self):
        """Codes count as parameters, though no optimizer of torch's sees them."""
        table = self.make()
        trained = [tensor for name, tensor in table.state_dict().items() if "seeds" not in name]
        assert table.num_params == sum(tensor.numel() for tensor in trained)
        assert table.nbytes == sum(tensor.nbytes for tensor in table.state_dict().values())
        assert table.nbytes == table.codebook_nbytes + table.pointer_nbytes
        assert table.pointer_nbytes == 24


class TestQuantizedByGroup(TestQuantized, variant=True):
    options: ClassVar[dict] = {"bits": 16, "scale_by": "group"}

    def reference(self, table, x):
        row = x if x < table.num_learned else table.num_learned + int(table.hash(torch.tensor(x)))
        group = (row + 1).bit_length() - 1 if x < table.num_learned else len(table.scale) - 1
        return table.codes.values[row] * table.scale[group]


def test_a_scale_for_each_column():
    table = table_of(scale_by="column")
    with torch.no_grad():
        table.scale.copy_(torch.arange(16.0))
    assert torch.equal(table(torch.tensor(7)), table.codes.values[7] * torch.arange(16.0))


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_ids_from_num_learned_on_share_rows():
    table = table_of(num_learned=10, num_shared=4)
    assert table.codes.values.shape == (14, 16)
    rows = table.rows(torch.arange(1000))
    assert torch.equal(rows[:10], torch.arange(10))
    assert rows[10:].min() == 10
    assert rows[10:].max() == 13
    assert rows[10:].bincount()[10:].min() > 150  # of 990 ids


def test_without_rare_ids_nothing_is_shared():
    table = table_of()
    assert table.codes.values.shape == (1000, 16)
    assert table.hash is None
    assert table_of(num_learned=999).num_shared == 1  # one id needs no more than one row


@pytest.mark.parametrize(("bits", "nbytes"), [(4, 8_004), (8, 16_004), (16, 32_004)])
def test_a_code_takes_half_a_byte_or_one_or_two(bits, nbytes):
    assert table_of(bits=bits).nbytes == nbytes


def test_a_budget_in_bytes_gives_codes_to_as_many_ids_as_it_holds():
    everyone = cce.create_embedding("quantized", 1000, 16, nbytes=16_100)
    assert everyone.num_learned == 1000
    some = cce.create_embedding("quantized", 1000, 16, nbytes=10_000)
    assert some.num_shared == 256
    assert 10_000 - 16 < some.nbytes <= 10_000
    wide = cce.create_embedding("quantized", 1000, 16, nbytes=10_000, bits=16)
    assert wide.num_shared == 155  # half of the rows
    assert 10_000 - 32 < wide.nbytes <= 10_000
    with pytest.raises(ValueError, match=r"nbytes must be at least 44 for method 'quantized' of these sizes, got 43\."):
        cce.create_embedding("quantized", 1000, 16, nbytes=43)
    assert cce.create_embedding("quantized", 1000, 16, nbytes=44).nbytes == 44


def test_a_number_of_learned_ids_that_is_given_is_not_exceeded():
    table = cce.create_embedding("quantized", 1000, 16, nbytes=16_000, num_learned=100)
    assert (table.num_learned, table.num_shared) == (100, 256)


def test_a_plan_knows_the_bytes_beforehand():
    for options in ({}, {"bits": 16}, {"scale_by": "group"}, {"scale_by": "column", "num_learned": 300}):
        sizes = METHODS["quantized"].complete_options(options)
        planned = METHODS["quantized"].footprint(1000, 16, sizes)
        table = table_of(**options)
        assert (planned.num_params, planned.nbytes) == (table.num_params, table.nbytes)
        assert planned.pointer_nbytes == table.pointer_nbytes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 2}, r"bits must be 4, 8 or 16, got 2\."),
        ({"scale_by": "row"}, r"scale_by must be one of table, column, group; got 'row'\."),
        ({"num_shared": 0}, r"num_shared must lie in \[1, 2\*\*31\), got 0\."),
        ({"num_learned": 1001}, r"num_learned must lie in \[0, 1001\), got 1001\."),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        table_of(**options)


# -- from a trained table ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "error"), [(8, 1 / 254), (16, 1 / 65_534)])
def test_a_trained_table_is_rounded_to_the_nearest_codes(bits, error):
    weight = torch.rand(1000, 16, generator=torch.Generator().manual_seed(1)) * 2 - 1
    table = table_of(bits=bits)
    table.fit_to(weight)
    assert (table.to_dense() - weight).abs().max() <= 1.01 * error


def test_a_trained_table_is_rounded_to_four_bits_and_back():
    weight = torch.randn(1000, 16, generator=torch.Generator().manual_seed(1))
    table = table_of(bits=4, num_learned=900)
    table.fit_to(weight)
    scale = table.scale.item()
    expected = (weight[:900] / scale).round().clamp(-7, 7) * scale
    torch.testing.assert_close(table.to_dense(torch.arange(900)), expected)
    other = table_of(bits=4, num_learned=900)
    other.load_state_dict(table.state_dict())
    assert torch.equal(other.to_dense(), table.to_dense())


def test_a_value_far_out_does_not_cost_the_others_their_precision():
    weight = torch.randn(1000, 16, generator=torch.Generator().manual_seed(1))
    weight[5, 5] = 1e6
    table = table_of(scale_by="column")
    table.fit_to(weight)
    others = torch.ones(16, dtype=torch.bool)
    others[5] = False
    torch.testing.assert_close(table.to_dense()[:, others], weight[:, others], rtol=0, atol=0.03)
    assert table.codes.values[5, 5] == 127


def test_a_shared_row_becomes_the_mean_of_its_ids():
    weight = torch.randn(1000, 16, generator=torch.Generator().manual_seed(1))
    table = table_of(num_learned=100, num_shared=3, scale_by="group", bits=16)
    table.fit_to(weight)
    rows = table.rows(torch.arange(1000))
    for row in (100, 101, 102):
        mean = weight[rows == row].mean(0)
        torch.testing.assert_close(table.to_dense()[rows == row][0], mean, rtol=1e-3, atol=1e-4)


def test_a_table_of_zeros_can_be_fitted():
    table = table_of()
    table.fit_to(torch.zeros(1000, 16))
    assert not table.to_dense().any()
    assert table.scale.item() > 0


@pytest.mark.slow
@pytest.mark.parametrize("scale_by", ["table", "group"])
def test_a_table_can_be_exported(scale_by):
    table, ids = table_of(num_learned=300, scale_by=scale_by), torch.tensor([[1, 999], [3, 0]])
    program = torch.export.export(table, (ids,))
    assert torch.equal(program.module()(ids), table(ids))


@pytest.mark.slow
def test_a_model_is_compressed_to_the_nearest_codes():
    model = torch.nn.Sequential(torch.nn.Embedding(10_000, 16), torch.nn.Linear(16, 1))
    weight = model[0].weight.detach().clone()
    cce.compress(model, method="quantized", nbytes=170_000, start="trained", seed=0)
    assert model[0].num_learned == 10_000
    assert (model[0].to_dense() - weight).abs().max() <= 0.51 * model[0].scale.item()


def test_print_says_what_it_is():
    assert repr(table_of(num_learned=10)).splitlines()[1].strip() == (
        "1000, 16, num_params=4257, num_learned=10, num_shared=256, bits=8"
    )
    assert isinstance(table_of(num_learned=10).hash, MultiplyShift)
