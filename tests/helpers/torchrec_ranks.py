"""What two processes do with TorchRec's `DistributedModelParallel`: `torchrec_ranks.py FOLDER RANK JOB`.

Every process has another global seed, as it has by itself.
"""

import gc
import sys
import warnings

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import cce
from cce.distributed import check_same

warnings.simplefilter("ignore")

import torchrec  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.model_parallel import DistributedModelParallel  # noqa: E402
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise  # noqa: E402
from torchrec.distributed.types import ShardingPlan  # noqa: E402

from cce.integrations.torchrec import (  # noqa: E402
    CompressedEmbeddingBagCollection,
    CompressedEmbeddingBagCollectionSharder,
)

DIFFERS = r"of table 'bags\.embedding_bags\.item\.table' must be the same on all ranks, but ranks 0 and 1 differ"


class Clicks(nn.Module):
    """Bags of one table and a linear layer."""

    def __init__(self, seed, **options):
        super().__init__()
        config = torchrec.EmbeddingBagConfig(
            name="item", embedding_dim=8, num_embeddings=4_000, feature_names=["seen", "item"]
        )
        self.bags = CompressedEmbeddingBagCollection([config], seed=seed, **options)
        self.out = nn.Linear(16, 1)

    def forward(self, features):
        return self.out(self.bags(features).values()).squeeze(-1)


def features(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    lengths = torch.randint(0, 4, (16,), generator=generator)
    ids = torch.randint(400, (int(lengths.sum()),), generator=generator)
    return torchrec.KeyedJaggedTensor(["seen", "item"], ids, lengths=lengths)


class TwoKinds(nn.Module):
    """Bags of ours, bags of TorchRec's, and a linear layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        ours, theirs = (
            torchrec.EmbeddingBagConfig(
                name=name, embedding_dim=8, num_embeddings=size, feature_names=[name], init_fn=nn.init.ones_
            )
            for name, size in (("item", 4_000), ("user", 400))
        )
        self.ours = CompressedEmbeddingBagCollection([ours], seed=0)
        self.theirs = torchrec.EmbeddingBagCollection([theirs])
        self.out = nn.Linear(16, 1)

    def forward(self, features):
        return self.out(torch.cat([self.ours(features).values(), self.theirs(features).values()], 1)).squeeze(-1)


def sharded():
    """Both kinds of tables over all ranks."""
    model, sharders = TwoKinds(), [CompressedEmbeddingBagCollectionSharder(), EmbeddingBagCollectionSharder()]
    plans = {
        path: construct_module_sharding_plan(bags, {table: row_wise(compute_kernel="dense")}, each, device_type="cpu")
        for (path, bags, table), each in zip(
            [("ours", model.ours, "item"), ("theirs", model.theirs, "user")], sharders, strict=True
        )
    }
    return DistributedModelParallel(model, device=torch.device("cpu"), plan=ShardingPlan(plans), sharders=sharders)


def part_of(step, rank, world_size):
    """This rank's rows of a batch of sixteen."""
    generator, per = torch.Generator().manual_seed(step), 16 // world_size
    lengths = torch.randint(0, 4, (2, 16), generator=generator)
    ids = torch.randint(300, (int(lengths.sum()),), generator=generator).split(lengths.sum(1).tolist())
    ends = torch.nn.functional.pad(lengths.cumsum(1), (1, 0))[:, rank * per : (rank + 1) * per + 1].tolist()
    values = torch.cat([own[end[0] : end[-1]] for own, end in zip(ids, ends, strict=True)])
    own = lengths[:, rank * per : (rank + 1) * per]
    return torchrec.KeyedJaggedTensor(["item", "user"], values, lengths=own.flatten())


def train(model, rank):
    """The loss of a further batch after five steps."""
    optimizer = cce.optim.Adam(model, lr=0.05)
    for step in range(5):
        optimizer.zero_grad()
        (model(part_of(step, rank, 2)) - 1).square().mean().backward()
        optimizer.step()
    return loss_of(model)


def loss_of(model):
    with torch.no_grad():
        return float((model(part_of(9, 0, 1)) - 1).square().mean())


def shards(folder, rank):
    """The same loss as replicas have; so has a copy that loads the checkpoint, and nearly so the final model."""
    model = sharded()
    loss = train(model, rank)
    assert loss == pytest.approx(train(DistributedDataParallel(TwoKinds()), rank), abs=1e-4)
    table = model.module.ours.embedding_bags["item"].table
    rows = torch.tensor(table.rows.num_rows - 1)
    assert 0 < rows < 300
    distributed.all_reduce(rows)
    assert rows == len(set().union(*(part_of(step, 0, 1)["item"].values().tolist() for step in range(5))))
    cce.save_checkpoint(f"{folder}/checkpoint", model.module, step=5)
    other = sharded()
    assert loss_of(other) != loss
    assert cce.load_checkpoint(f"{folder}/checkpoint", other.module) == {"step": 5}
    assert loss_of(other) == loss
    cce.finalize(model.module, num_columns=4, num_rows=256, seed=0)
    assert table.is_final
    check_same({"codebook": table.codebook})
    assert loss_of(model) == pytest.approx(loss, abs=1e-2)


def replicates(folder, rank):
    """Ranks that have no seed agree on one; different ones are rejected."""
    del folder
    for options in ({}, {"method": "hash", "cap": 640}, {"method": "robe", "cap": 640}):
        model = DistributedModelParallel(Clicks(None, **options), device=torch.device("cpu"))
        optimizer = cce.optim.Adam(model, lr=0.05)
        for step in range(3):
            optimizer.zero_grad()
            model(features(step, rank)).square().sum().backward()
            optimizer.step()
        check_same(model.module.state_dict())
        if not options:
            assert model.module.bags.embedding_bags["item"].table.rows.num_rows > 10
            cce.finalize(model.module, num_columns=4, num_rows=8)
            check_same(model.module.state_dict())
        other = DistributedModelParallel(Clicks(rank, **options), device=torch.device("cpu"))
        with pytest.raises(RuntimeError, match=DIFFERS):
            other(features(0, rank))


def main(folder, rank, job):
    torch.set_num_threads(1)
    torch.seed()
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    {"replicates": replicates, "shards": shards}[job](folder, rank)
    print("equal")
    gc.collect()  # a data-parallel model that outlives its group may abort the process
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
