"""FinalMLP: two networks on the same vectors, each behind a gate, whose outputs are multiplied head by head.

Mao et al., "FinalMLP: an enhanced two-stream MLP model for CTR prediction" (AAAI 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cce.checks import check_flag, check_range, check_type
from cce.models.network import check_hidden, make_linear, make_network
from cce.models.parts import ConcatenatingModel

if TYPE_CHECKING:
    from cce.collection import EmbeddingCollection
    from cce.schema import Batch, Schema


class Gate(nn.Module):
    """`2 · sigmoid(network(context))`, which scales every input of a stream (the paper's feature selection).

    The context is the vectors and dense values of the named columns; without names it is a learned vector.
    """

    def __init__(
        self,
        schema: Schema,
        dim: int,
        names: Sequence[str],
        *,
        hidden: Sequence[int],
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        columns = context_columns(schema, dim, names)
        self.register_buffer("columns", torch.tensor(columns, dtype=torch.int64), persistent=False)
        self.learned = None if columns else nn.Parameter(torch.empty(1, dim))
        if self.learned is not None:
            nn.init.normal_(self.learned, std=dim**-0.5, generator=generator)
        num_values = len(schema.features) * dim + len(schema.dense)
        self.network = make_network(len(columns) or dim, hidden, num_values, generator=generator)

    def forward(self, values: Tensor) -> Tensor:
        """Scaled values `(batch, size)`."""
        context = values[:, self.columns] if self.learned is None else self.learned  # type: ignore[index]
        return values * 2 * torch.sigmoid(self.network(context))


def context_columns(schema: Schema, dim: int, names: Sequence[str]) -> list[int]:
    """Where the values of these columns lie among the concatenated values of a row."""
    features = [feature.name for feature in schema.features]
    columns: list[int] = []
    for name in names:
        if name in features:
            start = features.index(name) * dim
            columns += range(start, start + dim)
        elif name in schema.dense:
            columns.append(len(features) * dim + schema.dense.index(name))
        else:
            known = ", ".join([*features, *schema.dense])
            raise ValueError(f"contexts must name columns of the data set, {known}; got {name!r}.")
    return columns


class FinalMLP(ConcatenatingModel):
    """A batch to logits `(batch)`: `b + w₁ · o₁ + w₂ · o₂ + Σ_h o₁ₕ · Wₕ o₂ₕ`, for the outputs of two networks.

    first, second: sizes of the hidden layers of the two networks.
    num_heads: pieces that the outputs are cut into; it must divide the last size of both.
    gates: scale the inputs of each network by a gate of its own.
    gate_hidden: sizes of the hidden layers of the gates.
    contexts: two lists of columns that the gates see; an empty one is a learned vector.
    dropout: share of each hidden layer's outputs that are left out at each step of training, or one for each network.
    batch_norm: normalise each hidden layer over the batch, before its ReLU.
    """

    def __init__(
        self,
        schema: Schema,
        tables: EmbeddingCollection,
        *,
        first: Sequence[int] = (400, 400, 400),
        second: Sequence[int] = (400,),
        num_heads: int = 1,
        gates: bool = True,
        gate_hidden: Sequence[int] = (800,),
        contexts: Sequence[Sequence[str]] = ((), ()),
        dropout: float | Sequence[float] = 0.0,
        batch_norm: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(schema, tables)
        _check_sizes(first, second, num_heads)
        check_hidden("gate_hidden", gate_hidden)
        check_flag("gates", gates)
        check_type("contexts", contexts, (list, tuple), "two lists of columns")
        dropouts = dropout if isinstance(dropout, list | tuple) else (dropout, dropout)
        if len(contexts) != 2 or len(dropouts) != 2:
            raise ValueError(f"contexts and dropout must be of two networks, got {contexts!r} and {dropout!r}.")
        self.num_heads = num_heads
        dim = tables.embedding_dim
        gate = {"hidden": gate_hidden, "generator": generator}
        self.gates = nn.ModuleList(Gate(schema, dim, names, **gate) for names in contexts if gates)  # type: ignore[arg-type]
        self.networks = nn.ModuleList(
            make_network(self.num_values, hidden, dropout=share, batch_norm=batch_norm, generator=generator)
            for hidden, share in zip((first, second), dropouts, strict=True)
        )
        self.linear = make_linear(first[-1] + second[-1], 1, generator)
        heads = (num_heads, first[-1] // num_heads, second[-1] // num_heads)
        self.bilinear = nn.Parameter(torch.empty(heads))
        nn.init.normal_(self.bilinear, std=(2 / (heads[1] + heads[2])) ** 0.5, generator=generator)

    def forward(self, batch: Batch) -> Tensor:
        """Logits `(batch)`."""
        values = self.concatenate(batch)
        inputs = [gate(values) for gate in self.gates] or [values, values]
        one, two = (network(each) for network, each in zip(self.networks, inputs, strict=True))
        first, second = (each.unflatten(1, (self.num_heads, -1)) for each in (one, two))  # (B, heads, size / heads)
        products = torch.einsum("bhi,hij,bhj->b", first, self.bilinear.to(first.dtype), second)
        return self.linear(torch.cat([one, two], dim=1)).squeeze(-1) + products  # type: ignore[no-any-return]


def _check_sizes(first: Sequence[int], second: Sequence[int], num_heads: int) -> None:
    check_range("num_heads", num_heads, 1, 2**31)
    for name, hidden in (("first", first), ("second", second)):
        check_hidden(name, hidden)
        if not hidden or hidden[-1] % num_heads:
            raise ValueError(f"{name} must end in a multiple of num_heads={num_heads}, got {list(hidden)}.")
