"""Rows sharded over processes: `torchrun --nproc-per-node 2 examples/sharded.py`; a process alone has the same score.

Each process has the rows of a share of the ids. Lookups, `optimizer.step`, `finalize` and `save` find the others.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import cce
from cce.distributed import init_distributed

NUM_IDS, BATCH, STEPS = 20_000, 1024, 40


class Clicks(nn.Module):
    """The vectors of three ids, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(NUM_IDS, 16)
        self.out = nn.Linear(48, 1)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.table(ids).flatten(1)).squeeze(1)


def draw(step: int) -> tuple[Tensor, Tensor]:
    """A batch of made-up clicks, which is the same in every process."""
    generator = torch.Generator().manual_seed(step)
    ids = (torch.rand(BATCH, 3, generator=generator) ** 4 * NUM_IDS).long()
    return ids, ((ids % 10).sum(1) < 13).float()


def main() -> None:
    torch.manual_seed(0)
    with init_distributed() as ranks:
        model = Clicks()
        cce.compress(model, shard=True, seed=0)
        alone = ranks.world_size == 1
        parallel = model if alone else DistributedDataParallel(model)
        optimizer = cce.optim.Adam(model, lr=0.01)
        for step in range(STEPS):
            ids, labels = (each.chunk(ranks.world_size)[ranks.rank] for each in draw(step))
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(parallel(ids), labels).backward()
            optimizer.step()
        held = model.table.rows.num_rows - 1
        del parallel  # it must not outlive the process group
        cce.finalize(model, bits=32, seed=0)
        with TemporaryDirectory() as folder:
            cce.save(model, Path(folder) / "model.safetensors")  # rank 0 writes one file, of all ids
            if ranks.is_main:
                served = cce.load(Path(folder) / "model.safetensors", into=Clicks())
                ids, labels = draw(STEPS)
                loss = nn.functional.binary_cross_entropy_with_logits(served(ids), labels)
                print(f"{ranks.world_size} processes, {held:,} rows in the first: BCE {loss:.4f} of new clicks")


if __name__ == "__main__":
    main()
