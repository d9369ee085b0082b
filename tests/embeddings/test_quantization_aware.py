import copy
from typing import ClassVar

import pytest
import torch

import cce
from cce.budget import FULL_SIZED, Budget
from cce.collection import plan_tables
from cce.embeddings import METHODS
from cce.embeddings.quantization_aware import FIT_EVERY
from cce.testing import DIM, NUM_IDS, EmbeddingContract


def table_of(num_ids=1000, dim=16, **options):
    return cce.QuantizationAwareEmbedding(num_ids, dim, generator=torch.Generator().manual_seed(0), **options)


def heavy_tailed(num_ids=1000, dim=16):
    """Rows of which some values lie beyond the largest code."""
    weight = torch.randn(num_ids, dim, generator=torch.Generator().manual_seed(1))
    weight[::100] *= 40
    return weight


def train(table, num_steps, *, lr=0.05, first=0):
    """Steps of SGD towards ones."""
    optimizer = torch.optim.SGD(table.parameters(), lr=lr)
    for step in range(first, first + num_steps):
        optimizer.zero_grad()
        ids = torch.randint(0, table.num_embeddings, (50,), generator=torch.Generator().manual_seed(step))
        (table(ids) - 1).square().sum().backward()
        optimizer.step()


class TestQuantizationAware(EmbeddingContract):
    table_class = cce.QuantizationAwareEmbedding
    compression = 1

    def reference(self, table, x):
        scale = table.scale[0].double()
        steps = (table.codebook[x] / scale).round()
        return steps.clamp(-table.rounding.largest, table.rounding.largest) * scale

    def test_gradients_are_right_in_float64(self):
        """Those of the rows as if they were not rounded: the definition, where differences say nothing."""
        table = self.make(30, 4).double()
        ids = self.ids(5, high=30)
        weight = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double()
        (table(ids) * weight).sum().backward()
        expected = torch.zeros(30, 4).double().index_add_(0, ids, weight)
        torch.testing.assert_close(table.codebook.grad, expected)

    def test_a_budget_that_holds_the_full_table_gives_the_full_table(self):
        """Its own, which is as large."""
        for budget in (NUM_IDS * DIM, 10 * NUM_IDS * DIM):
            table = self.make(num_params=budget, padding_idx=2)
            assert type(table) is self.table_class
            assert table.num_params == NUM_IDS * DIM
            assert table.padding_idx == 2


class TestFourBits(TestQuantizationAware, variant=True):
    options: ClassVar[dict] = {"bits": 4, "scale_by": "table"}

    def test_all_float_types(self):
        """A step of 4 bits is larger than what the contract allows types of half the bits to differ by."""
        for dtype in (torch.bfloat16, torch.float16):
            table, exact = self.make(dtype=dtype), self.make()
            found = table(self.ids(20))
            assert found.dtype == dtype
            steps = (found.float() - exact(self.ids(20))).abs() / exact.scale
            assert (steps > 0.1).float().mean() < 0.02  # values between two steps may go either way
            assert table.scale.dtype == torch.float32


# -- what it rounds to -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale_by", ["table", "column"])
@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_quantized_table_made_of_it_is_the_same_table(bits, scale_by):
    options = {"bits": bits, "scale_by": scale_by}
    table = table_of(**options)
    table.fit_to(heavy_tailed())
    dense = table.eval().to_dense()
    assert (table.codebook / table.scale).abs().max() > 1.1 * table.rounding.largest  # some are cut off
    quantized = cce.QuantizedEmbedding(1000, 16, **options)
    quantized.fit_to(dense)
    torch.testing.assert_close(quantized.scale.detach(), table.scale)
    torch.testing.assert_close(quantized.to_dense(), dense)
    assert torch.equal(quantized.codes.read(torch.arange(1000)).float(), (dense / table.scale).round())


@pytest.mark.parametrize("bits", [8, 16])
def test_it_rounds_as_a_quantized_table_of_its_rows_does(bits):
    table = table_of(bits=bits)
    quantized = cce.QuantizedEmbedding(1000, 16, bits=bits, scale_by="column")
    quantized.fit_to(table.codebook.detach())
    assert torch.equal(table.eval().to_dense(), quantized.to_dense())


def test_four_bits_cut_off_large_values_for_finer_steps():
    weight = heavy_tailed()
    table = table_of(bits=4)
    table.fit_to(weight)
    torch.testing.assert_close(table.scale[0], 2.5 * weight.square().mean(0).sqrt() / 7)


def test_its_codes_are_those_of_the_table_as_it_is_evaluated():
    table = table_of(bits=4)
    train(table, 3)
    codes, scale = table.to_codes()  # in training: with a scale that fits
    assert not torch.equal(scale, table.scale)
    table.eval()
    assert torch.equal(scale, table.scale)
    assert torch.equal(codes.read(torch.arange(1000)) * scale, table.to_dense())
    assert torch.equal(table.to_codes()[0].values, codes.values)


def test_a_scale_for_each_column_or_one_for_all():
    weight = torch.randn(1000, 16, generator=torch.Generator().manual_seed(1)) * torch.arange(1.0, 17.0)
    column, whole = table_of(), table_of(scale_by="table")
    for table in (column, whole):
        table.fit_to(weight)
    torch.testing.assert_close(column.scale[0], weight.abs().amax(0) / 127)
    assert whole.scale.shape == (1, 1)
    assert whole.scale.item() == pytest.approx(weight.abs().max().item() / 127)


# -- the gradient ------------------------------------------------------------------------------------------------------


def test_the_gradient_reaches_values_beyond_the_largest_code():
    table = table_of(10, 4, scale_by="table", bits=4).eval()
    with torch.no_grad():
        table.codebook[3] = 1000.0
    vectors = table(torch.tensor([3]))
    assert torch.equal(vectors.detach(), (7 * table.scale).expand(1, 4))
    vectors.sum().backward()
    assert table.codebook.grad[3].tolist() == [1, 1, 1, 1]
    assert table.codebook.grad.sum() == 4


def test_it_learns_what_its_codes_can_say():
    table = table_of(50, 4)
    train(table, 300)
    assert (table.eval().to_dense() - 1).abs().max() < 0.01


# -- the scale in training ---------------------------------------------------------------------------------------------


def fits(table, num_lookups):
    """Before which lookups the scale is fitted, of a table whose rows grow each time."""
    found, ids = [], torch.tensor([0])
    for lookup in range(num_lookups):
        before = table.scale.clone()
        with torch.no_grad():
            table.codebook.mul_(1.1)
        table(ids)
        if not torch.equal(before, table.scale):
            found.append(lookup)
    return found


def test_the_scale_is_fitted_often_at_first_and_then_now_and_then():
    powers = [2**power for power in range(FIT_EVERY.bit_length())]
    assert fits(table_of(20, 4), 3 * FIT_EVERY) == [0, *powers, 2 * FIT_EVERY]
    assert table_of(20, 4).fitted.num_lookups.tolist() == [0]


def test_a_table_that_is_resumed_goes_on_to_the_bit():
    whole, half = table_of(200, 4), table_of(200, 4)
    train(whole, FIT_EVERY + 30)
    train(half, 37)
    resumed = cce.QuantizationAwareEmbedding(200, 4)
    resumed.load_state_dict(half.state_dict())
    train(resumed, FIT_EVERY - 7, first=37)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_evaluation_neither_counts_nor_fits():
    table = table_of(20, 4).eval()
    assert fits(table, 10) == []
    assert table.fitted.num_lookups.item() == 0


def test_without_gradients_nothing_is_counted_in_training_either():
    table = table_of(20, 4)
    with torch.no_grad():
        assert fits(table, 10) == []
    table.to_dense()
    assert table.fitted.num_lookups.item() == 0


def test_a_switch_to_evaluation_fits_the_scale_and_back_does_not():
    table = torch.nn.Sequential(table_of(20, 4))
    with torch.no_grad():
        table[0].codebook.mul_(2)
    before = table[0].scale.clone()
    table.train()
    assert torch.equal(table[0].scale, before)
    table.eval()
    torch.testing.assert_close(table[0].scale, 2 * before)
    with torch.no_grad():
        table[0].codebook.mul_(2)
    table.eval()  # it was in evaluation before
    table.train()
    torch.testing.assert_close(table[0].scale, 2 * before)


def test_the_scale_keeps_its_precision_when_rows_are_stored_in_fewer_bits():
    table = table_of()
    scale = table.scale.clone()
    assert torch.equal(table.half().float().scale, scale)
    assert torch.equal(copy.deepcopy(table).double().scale, scale)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_table_of_zeros_gives_zeros(dtype):
    table = table_of(start_scale="zero").to(dtype)
    assert not table.to_dense().any()


# -- budgets -----------------------------------------------------------------------------------------------------------


def test_it_needs_no_budget_and_has_one_size():
    table = cce.create_embedding("qat", 100, 8, bits=4)
    assert (type(table), table.num_params, table.nbytes) == (METHODS["qat"], 800, 3200 + 8 * 4 + 8)
    with pytest.raises(ValueError, match=r"num_params must be at least 800 for method 'qat' of these sizes, got 799\."):
        cce.create_embedding("qat", 100, 8, num_params=799)
    with pytest.raises(ValueError, match=r"nbytes must be at least 3240 for method 'qat' of these sizes, got 3239\."):
        cce.create_embedding("qat", 100, 8, nbytes=3239)
    assert type(cce.create_embedding("qat", 100, 8, nbytes=3240)) is METHODS["qat"]


@pytest.mark.parametrize("budget", [Budget(), Budget(cap=50), Budget(num_params=10**6), Budget(nbytes=10**6)])
def test_all_tables_of_a_plan_are_of_it(budget):
    tables = plan_tables({"a": 100, "b": 7}, 8, method="qat", budget=budget).tables
    assert [(table.method, table.num_params, table.reason) for table in tables] == [("qat", 800, ""), ("qat", 56, "")]


def test_a_total_that_does_not_hold_all_tables_is_rejected():
    message = r"num_params must be at least 856, the smallest tables together, got 855\."
    with pytest.raises(ValueError, match=message):
        plan_tables({"a": 100, "b": 7}, 8, method="qat", num_params=855)


def test_a_model_takes_it_without_a_budget():
    model = torch.nn.Sequential(torch.nn.Embedding(500, 8, sparse=True), torch.nn.Linear(8, 1))
    weight = model[0].weight.detach().clone()
    plan = cce.compress(model, method="qat", names="0", start="trained")
    assert plan.tables[0].method == model[0].method == "qat"
    assert (model.eval()[0].to_dense() - weight).abs().max() <= 0.51 * model[0].scale.max()
    assert model[0].sparse


@pytest.mark.parametrize("method", FULL_SIZED)
def test_methods_of_one_size_are_those_that_no_budget_makes_smaller(method):
    kind = METHODS[method]
    assert kind.smallest_budget(100, 8, kind.complete_options({})) == 800
    assert set(FULL_SIZED) == {"full", "qat"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 2}, r"bits must be 4, 8 or 16, got 2\."),
        ({"scale_by": "group"}, r"scale_by must be one of table, column; got 'group'\."),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        table_of(**options)


def test_print_says_what_it_is():
    assert repr(table_of(bits=4)).splitlines()[1].strip() == "1000, 16, num_params=16000, bits=4, scale_by='column'"
