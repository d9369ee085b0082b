from typing import ClassVar

import pytest
import torch

import cce
from cce.embeddings import METHODS
from cce.testing import DIM, NUM_IDS, EmbeddingContract


def table_of(num_ids=1000, dim=16, **options):
    return cce.embeddings.QuantizedEmbedding(num_ids, dim, generator=torch.Generator().manual_seed(0), **options)


class TestQuantized(EmbeddingContract):
    table_class = cce.embeddings.QuantizedEmbedding
    has_sparse = False
    compression = 1

    def reference(self, table, x):
        return table.codes.values[x] * table.scale[0]

    def test_num_params_and_bytes_are_exact(self):
        """Codes count as parameters, though no optimizer of torch's sees them."""
        table = self.make()
        assert table.num_params == NUM_IDS * DIM
        assert table.nbytes == sum(tensor.nbytes for tensor in table.state_dict().values()) == table.codebook_nbytes
        assert table.pointer_nbytes == 0

    def gradients(self, table, ids):
        """Of few ids: torch sums the gradient of the scale, on one thread if there are few terms."""
        return super().gradients(table, ids[:1000])

    def test_a_budget_that_holds_the_full_table_gives_the_full_table(self):
        """It has one size, which a larger budget does not change."""
        assert isinstance(self.make(num_params=10 * NUM_IDS * DIM, padding_idx=2), METHODS["quantized"])


class TestQuantizedByColumn(TestQuantized, variant=True):
    options: ClassVar[dict] = {"bits": 16, "scale_by": "column"}


@pytest.mark.parametrize(("bits", "nbytes"), [(4, 8_004), (8, 16_004), (16, 32_004)])
def test_a_code_takes_half_a_byte_or_one_or_two(bits, nbytes):
    assert table_of(bits=bits).nbytes == nbytes
    assert cce.create_embedding("quantized", 1000, 16, nbytes=nbytes, bits=bits).nbytes == nbytes
    with pytest.raises(ValueError, match=rf"nbytes must be at least {nbytes} for method 'quantized'"):
        cce.create_embedding("quantized", 1000, 16, nbytes=nbytes - 1, bits=bits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 2}, r"bits must be 4, 8 or 16, got 2\."),
        ({"scale_by": "row"}, r"scale_by must be one of table, column; got 'row'\."),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        table_of(**options)


@pytest.mark.parametrize(("bits", "error"), [(8, 1 / 254), (16, 1 / 65_534)])
def test_a_trained_table_is_rounded_to_the_nearest_codes(bits, error):
    weight = torch.rand(1000, 16, generator=torch.Generator().manual_seed(1)) * 2 - 1
    table = table_of(bits=bits)
    table.fit_to(weight)
    assert (table.to_dense() - weight).abs().max() <= 1.01 * error


def test_a_trained_table_is_rounded_to_four_bits_and_back():
    weight = torch.randn(1000, 16, generator=torch.Generator().manual_seed(1))
    table = table_of(bits=4)
    table.fit_to(weight)
    scale = table.scale.item()
    torch.testing.assert_close(table.to_dense(), (weight / scale).round().clamp(-7, 7) * scale)
    other = table_of(bits=4)
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


def test_a_table_of_zeros_can_be_fitted():
    table = table_of()
    table.fit_to(torch.zeros(1000, 16))
    assert not table.to_dense().any()
    assert table.scale.item() > 0


@pytest.mark.slow
def test_a_model_is_compressed_to_the_nearest_codes():
    model = torch.nn.Sequential(torch.nn.Embedding(10_000, 16), torch.nn.Linear(16, 1))
    weight = model[0].weight.detach().clone()
    cce.compress(model, method="quantized", nbytes=170_000, start="trained", seed=0)
    assert (model[0].to_dense() - weight).abs().max() <= 0.51 * model[0].scale.item()


def test_print_says_what_it_is():
    assert repr(table_of()).splitlines()[1].strip() == "1000, 16, num_params=16000, bits=8"
