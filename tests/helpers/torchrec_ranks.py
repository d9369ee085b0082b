"""What two processes do with TorchRec's `DistributedModelParallel`: `torchrec_ranks.py FOLDER RANK`.

Every process has another global seed, as it has by itself.
"""

import gc
import sys
import warnings

import pytest
import torch
from torch import distributed, nn

import cce
from cce.distributed import check_same

warnings.simplefilter("ignore")

import torchrec  # noqa: E402
from torchrec.distributed.model_parallel import DistributedModelParallel  # noqa: E402

from cce.integrations.torchrec import CompressedEmbeddingBagCollection  # noqa: E402

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


def main(folder, rank):
    torch.set_num_threads(1)
    torch.seed()
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
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
    print("equal")
    del model, other
    gc.collect()  # a data-parallel model that outlives its group may abort the process
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
