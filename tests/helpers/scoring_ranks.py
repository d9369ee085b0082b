"""Scores of a tiny model by all processes that torchrun started; each prints what it got as a line of JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import torch
from torch import nn

from cce.data import PreparedData
from cce.distributed import init_distributed
from cce.training.scoring import score

if TYPE_CHECKING:
    from pathlib import Path

    from cce.distributed import Ranks
    from cce.schema import Batch

ROW = 77  # of the validation rows


class Plain(nn.Module):
    """A model without matrix products, whose bits would depend on the size of a batch."""

    def forward(self, batch: Batch) -> torch.Tensor:
        """Of a row, from its own values."""
        return batch.dense[:, 0] - 0.5 * batch.dense[:, 1] + 0.01 * batch.ids[:, 2]


class Breaking(nn.Module):
    """A model whose logit of one row is not a number, found by its dense values."""

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self.values = values

    def forward(self, batch: Batch) -> torch.Tensor:
        """Zeros, but for one row."""
        return torch.where((batch.dense == self.values).all(1), torch.nan, 0.0)


def main(data: Path | str, metrics: list[str]) -> None:
    """Score a model, and a broken one."""
    prepared = PreparedData.open(data)
    dense = next(iter(prepared.loader("validation", batch_size=1_000, shuffle=False))).dense
    with init_distributed() as ranks:

        def scores(scored: nn.Module) -> dict[str, float]:
            loader = _loader(prepared, ranks)
            return score(scored, loader, metrics, device=torch.device("cpu"), ranks=ranks)

        told = {"exact": scores(Plain()), "error": ""}
        try:
            scores(Breaking(dense[ROW]))
        except ValueError as error:
            told["error"] = str(error)
        sys.stdout.write(json.dumps(told) + "\n")


def _loader(prepared: PreparedData, ranks: Ranks) -> object:
    share = {"rank": ranks.rank, "world_size": ranks.world_size}
    return prepared.loader("validation", batch_size=83, shuffle=False, **share)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
