"""Networks of linear layers, which all models share: batch normalisation, ReLU and dropout after each hidden layer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from cce.checks import check_flag, check_range, check_type
from cce.models.parts import check_dropout


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that takes its running statistics where a batch of training has fewer than two rows."""

    def forward(self, values: Tensor) -> Tensor:
        """Normalised values `(batch, size)`; the last batch of an epoch may be a single row."""
        if self.training and len(values) < 2:
            return nn.functional.batch_norm(
                values, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(values)


def check_hidden(name: str, hidden: Sequence[int]) -> None:
    """Reject hidden sizes that are no list of positive ints."""
    check_type(name, hidden, (list, tuple), "a list of ints")
    for size in hidden:
        check_range(name, size, 1, 2**31)


def make_network(
    num_inputs: int,
    hidden: Sequence[int],
    num_outputs: int | None = None,
    *,
    dropout: float = 0.0,
    batch_norm: bool = False,
    random_bias: bool = False,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Hidden layers of the given sizes and, with `num_outputs`, a linear layer without ReLU at the end.

    Weights start as DLRM's do (Xavier, normal). Biases start at zero or, with `random_bias`, as DLRM's.
    """
    check_dropout(dropout)
    check_flag("batch_norm", batch_norm)
    layers: list[nn.Module] = []
    for size_in, size_out in pairwise((num_inputs, *hidden)):
        layers += [_linear(size_in, size_out, random_bias=random_bias, generator=generator)]
        layers += [BatchNorm(size_out)] if batch_norm else []
        layers += [nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
    if num_outputs is not None:
        last = hidden[-1] if hidden else num_inputs
        layers += [_linear(last, num_outputs, random_bias=random_bias, generator=generator)]
    return nn.Sequential(*layers)


def make_linear(num_inputs: int, num_outputs: int, generator: torch.Generator | None = None) -> nn.Linear:
    """One linear layer that starts as those of networks do."""
    return _linear(num_inputs, num_outputs, random_bias=False, generator=generator)


def _linear(num_inputs: int, num_outputs: int, *, random_bias: bool, generator: torch.Generator | None) -> nn.Linear:
    linear = nn.Linear(num_inputs, num_outputs)
    nn.init.normal_(linear.weight, std=(2 / (num_inputs + num_outputs)) ** 0.5, generator=generator)
    if random_bias:
        nn.init.normal_(linear.bias, std=(1 / num_outputs) ** 0.5, generator=generator)
    else:
        nn.init.zeros_(linear.bias)
    return linear
