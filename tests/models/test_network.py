"""Networks: which layers they have, where they start, and batches of one row."""

import pytest
import torch
from torch import nn

from cce.models.network import BatchNorm, make_linear, make_network


def test_hidden_layers_are_normalised_then_cut_then_dropped():
    kinds = [type(layer).__name__ for layer in make_network(3, (5, 4), 1, dropout=0.5, batch_norm=True)]
    assert kinds == [*("Linear", "BatchNorm", "ReLU", "Dropout") * 2, "Linear"]
    assert [type(layer).__name__ for layer in make_network(3, (5,))] == ["Linear", "ReLU"]
    assert not len(make_network(3, ()))


def test_weights_start_as_xavier_has_them_and_biases_at_zero_unless_random():
    torch.manual_seed(0)
    linear = make_linear(300, 100)
    assert linear.weight.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.02)
    assert not linear.bias.any()
    random = make_network(3, (4000,), random_bias=True)[0].bias
    assert random.std().item() == pytest.approx(4000**-0.5, rel=0.05)


def test_a_batch_of_one_row_is_normalised_by_what_earlier_ones_had():
    norm, rows = BatchNorm(2), torch.tensor([[1.0, 10.0], [3.0, 14.0]])
    norm(rows)
    expected = (rows[:1] - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    before = norm.running_mean.clone()
    torch.testing.assert_close(norm(rows[:1]), expected)
    assert torch.equal(norm.running_mean, before)
    torch.testing.assert_close(BatchNorm(2)(rows), nn.BatchNorm1d(2)(rows))
