"""Every table starts with mean 0 and variance 1 / (3 · embedding_dim)."""

import math

import pytest
import torch
from scipy import stats

from cce.embeddings.initialization import normal_table, output_variance, projection_table


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("embedding_dim", [1, 16, 100])
def test_the_starting_variance_is_that_of_a_uniform_number_within_one_over_root_dim(embedding_dim):
    edge = 1 / math.sqrt(embedding_dim)
    assert output_variance(embedding_dim) == pytest.approx((2 * edge) ** 2 / 12)


@pytest.mark.parametrize("variance", [1e-4, 1 / 48, 2.0])
def test_a_table_is_normal_with_mean_zero_and_the_variance_asked_for(variance):
    numbers = normal_table(500, 40, variance=variance, generator=seeded()).detach().flatten().double()
    assert abs(numbers.mean().item()) < 4 * math.sqrt(variance / 20_000)
    assert numbers.var().item() == pytest.approx(variance, rel=4 * math.sqrt(2 / 20_000))
    assert stats.kstest(numbers.numpy() / math.sqrt(variance), "norm").pvalue > 1e-4


@pytest.mark.parametrize(
    "make",
    [
        lambda generator: normal_table(5, 7, variance=1.0, generator=generator),
        lambda generator: projection_table(5, 7, generator=generator),
    ],
)
def test_a_table_is_a_float32_parameter_on_the_cpu_and_equal_for_equal_generators(make):
    with torch.device("meta"):
        table = make(seeded(1))
    assert isinstance(table, torch.nn.Parameter)
    assert table.requires_grad
    assert (table.shape, table.dtype, table.device.type) == ((5, 7), torch.float32, "cpu")
    assert torch.equal(table, make(seeded(1)))
    assert not torch.equal(table, make(seeded(2)))


@pytest.mark.parametrize(("narrow", "wide"), [(1, 16), (2, 16), (8, 16), (16, 16), (4, 5)])
def test_every_row_of_a_projection_has_squared_norm_wide_over_narrow(narrow, wide):
    rows = projection_table(narrow, wide, generator=seeded()).detach().double()
    assert torch.allclose(rows.square().sum(1), torch.full((narrow,), wide / narrow, dtype=torch.float64), rtol=1e-6)


@pytest.mark.parametrize("narrow", [1, 4, 16])
def test_a_narrow_table_times_a_projection_keeps_the_variance(narrow):
    variance = output_variance(16)
    table = normal_table(20_000, narrow, variance=variance, generator=seeded())
    outputs = (table @ projection_table(narrow, 16, generator=seeded(1))).detach().double()
    assert outputs.square().mean().item() == pytest.approx(variance, rel=0.03)
    assert abs(outputs.mean().item()) < 0.02 * math.sqrt(variance)
