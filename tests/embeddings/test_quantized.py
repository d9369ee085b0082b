from typing import ClassVar

import pytest
import torch

import cce
from cce.embeddings import METHODS
from cce.embeddings.quantized import HEADROOMS, SERIAL, Codes
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
    options: ClassVar[dict] = {"scale_by": "column"}


@pytest.mark.parametrize(("bits", "nbytes"), [(4, 8_004), (8, 16_004)])
def test_a_code_takes_half_a_byte_or_one(bits, nbytes):
    assert table_of(bits=bits).nbytes == nbytes
    assert cce.create_embedding("quantized", 1000, 16, nbytes=nbytes, bits=bits).nbytes == nbytes
    with pytest.raises(ValueError, match=rf"nbytes must be at least {nbytes} for method 'quantized'"):
        cce.create_embedding("quantized", 1000, 16, nbytes=nbytes - 1, bits=bits)


def test_a_trained_table_is_rounded_to_the_nearest_codes():
    weight = torch.rand(1000, 16, generator=torch.Generator().manual_seed(1)) * 2 - 1
    table = table_of()
    table.fit_to(weight)
    assert (table.to_dense() - weight).abs().max() <= 1.01 / 254


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


@pytest.mark.slow
def test_a_model_is_compressed_to_the_nearest_codes():
    model = torch.nn.Sequential(torch.nn.Embedding(10_000, 16), torch.nn.Linear(16, 1))
    weight = model[0].weight.detach().clone()
    cce.compress(model, method="quantized", nbytes=170_000, start="trained", seed=0)
    assert (model[0].to_dense() - weight).abs().max() <= 0.51 * model[0].scale.item()


# -- codes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "largest"), [(4, 7), (8, 127)])
def test_codes_are_saved_but_are_no_parameters(bits, largest):
    codes = Codes(10, 4, bits=bits)
    assert codes.largest == largest
    assert codes.nbytes == 10 * 4 * bits // 8
    assert list(codes.parameters()) == list(codes.buffers()) == []
    assert codes.double().state_dict()["values"].dtype is codes.values.dtype


@pytest.mark.parametrize("width", [1, 5, 6])
def test_two_codes_of_four_bits_share_a_byte(width):
    codes = Codes(9, width, bits=4)
    written = torch.randint(-7, 8, (6, width), generator=torch.Generator().manual_seed(0))
    codes.write(2, written.float(), torch.ones(1))
    assert codes.nbytes == 9 * ((width + 1) // 2)
    rows = torch.tensor([7, 2, 2, 5])
    assert torch.equal(codes.read(rows).long(), written[rows - 2])


def test_codes_stay_within_the_largest():
    found = Codes(1, 5, bits=4).nearest(torch.tensor([-9.0, -1.6, 0.4, 7.4, 100.0]), 1.0)
    assert found.tolist() == [-7, -2, 0, 7, 7]


def test_a_scale_fits_the_largest_value_or_the_root_mean_square():
    codes, far = Codes(1, 1, bits=8), torch.ones(1000)
    assert codes.fitted_scale(torch.tensor([-3.0, 1.0])) == pytest.approx(3 / 127)
    far[0] = 1000.0
    assert codes.fitted_scale(far) == pytest.approx(8 * far.square().mean().sqrt().item() / 127)
    assert codes.fitted_scale(torch.zeros(5)) > 0


def test_with_four_bits_the_scale_has_the_least_error():
    codes, values = Codes(1, 1, bits=4), torch.randn(3 * SERIAL + 5, generator=torch.Generator().manual_seed(0))
    values[::500] *= 30
    scales = [headroom * values.double().square().mean().sqrt().item() / 7 for headroom in HEADROOMS[4]]
    errors = [(codes.nearest(values, s) * s - values).double().square().sum().item() for s in scales]
    assert codes.fitted_scale(values) == pytest.approx(scales[errors.index(min(errors))])
