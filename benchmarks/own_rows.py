"""What coding costs in the last round of refits, and what rows of their own for the most frequent ids would gain.

    python -m benchmarks.own_rows runs/data/ml1m

Trains GMF, refits it in rounds, and fits the last round with the vectors that ids want put in place of their codes, for
a share of the ids: 0 is the table as it is, 1 a refit without quantising. Scores, not speed.
"""

from __future__ import annotations

import argparse
import copy
from typing import TYPE_CHECKING

import numpy as np
import torch

from cce import Budget, CCEEmbedding, EmbeddingCollection, PreparedData, Refit
from cce.models import create_model
from cce.reclustering import cross_entropy
from cce.training import count_ids

if TYPE_CHECKING:
    from torch import Tensor, nn

SHARES = (0.0, 0.01, 0.05, 0.2, 1.0)
DIM, EPOCHS, BATCH_SIZE, LR = 16, 2, 4096, 0.02


class OwnRows:
    """A collection that answers the vectors of some ids from tables of their own."""

    def __init__(self, tables: nn.Module) -> None:
        self.vectors: dict[int, Tensor] = {}
        self.hook = tables.register_forward_hook(self._answer)

    def _answer(self, tables: nn.Module, inputs: tuple[Tensor, ...], found: Tensor) -> Tensor:
        if "forward" in vars(tables):  # a refit answers for it
            return found
        found = found.clone()
        for column, own in self.vectors.items():
            ids = inputs[0][:, column]
            found[ids < len(own), column] = own[ids[ids < len(own)]]
        return found


def make_model(data: PreparedData, cap: int) -> nn.Module:
    """A model with the tables of a run that is refitted."""
    defaults = CCEEmbedding.training_defaults()
    learned = {name: defaults.num_learned(counts) for name, counts in count_ids(data).items()}
    tables = EmbeddingCollection(
        data.schema.vocabulary_sizes,
        DIM,
        method="cce",
        budget=Budget(cap=cap, num_learned=learned),
        options={"cce": dict(defaults.options)},
        seed=0,
    )
    return create_model("gmf", data.schema, tables)


def train(model: nn.Module, data: PreparedData) -> None:
    """The epochs of a run, with a rate that falls to zero."""
    rows, rng = data.rows("train"), np.random.default_rng(0)
    steps = -(-len(rows) // BATCH_SIZE)
    optimizer = torch.optim.Adam(model.parameters(), LR)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps * EPOCHS)
    for _ in range(EPOCHS):
        for numbers in np.array_split(rng.permutation(len(rows)), steps):
            batch = rows.fetch(numbers)
            optimizer.zero_grad()
            cross_entropy(model(batch), batch).mean().backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def score(model: nn.Module, data: PreparedData, split: str) -> float:
    """The cross-entropy of a split."""
    rows = data.rows(split)
    parts = [rows.fetch(numbers) for numbers in np.array_split(np.arange(len(rows)), 16)]
    return float(torch.cat([cross_entropy(model(part), part) for part in parts]).mean())


def last_round(refit: Refit, share: float) -> tuple[OwnRows, int]:
    """Refit every table on all rows; the first ids keep what they want. Their number comes back too."""
    own, names = OwnRows(refit.model.tables), list(refit.model.tables.features)
    for group in refit.groups:
        wanted = refit.wanted(*group, generator=torch.Generator().manual_seed(0))
        for name, staged in refit.stage(*group, generator=torch.Generator().manual_seed(0)).items():
            staged.apply()
            num_ids = int(share * refit.tables[name].row_map.num_rows)
            own.vectors[names.index(name)] = wanted[name][:num_ids]
    return own, sum(map(len, own.vectors.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder of a prepared data set of ids alone")
    parser.add_argument("--cap", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = PreparedData.open(options.data)
    model = make_model(data, options.cap)
    train(model, data)
    refit = Refit(model, data.rows("train"))
    for turn in range(options.rounds - 1):
        refit.round(generator=torch.Generator().manual_seed(turn))
    before, priors = copy.deepcopy(model.state_dict()), dict(refit.priors)
    for share in SHARES:
        model.load_state_dict(copy.deepcopy(before))
        refit.priors = dict(priors)
        own, num_own = last_round(refit, share)
        scores = ", ".join(f"{split} {score(model, data, split):.4f}" for split in ("validation", "test"))
        print(f"{share:4.0%} of the ids, {num_own * 4 * DIM / 1000:8,.0f} kB: {scores}", flush=True)
        own.hook.remove()


if __name__ == "__main__":
    main()
