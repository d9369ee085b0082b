"""Two processes of Lightning train and cluster one table: `lightning_ranks.py OUT`."""

import json
import sys
from pathlib import Path

import lightning.pytorch as lightning
import torch

import cce
from cce.integrations.lightning import ClusterCallback

NUM_IDS, DIM = 300, 8


class Clicks(lightning.LightningModule):
    """A table and a linear layer."""

    def __init__(self):
        super().__init__()
        self.table = cce.create_embedding("cce", NUM_IDS, DIM, num_params=256, seed=0)
        self.out = torch.nn.Linear(DIM, 1)

    def training_step(self, batch, _):
        ids, labels = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(self.out(self.table(ids)).squeeze(1), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


def main(out):
    torch.set_num_threads(1)
    ids = torch.randint(NUM_IDS, (640,), generator=torch.Generator().manual_seed(0))
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ids, (ids % 3 == 0).float()), batch_size=16)
    callback, model = ClusterCallback(every=8), Clicks()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False, callbacks=[callback],
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, default_root_dir=out,
    )  # fmt: skip
    trainer.fit(model, rows)
    dense = model.table.to_dense().double()
    found = {
        "clustered": callback.schedule.num_steps // 8,
        "sum": dense.sum().item(),
        "square": dense.square().sum().item(),
    }
    (out / f"{trainer.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
