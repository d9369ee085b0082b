"""Two processes of Lightning train one table at a time, and finalize it: `lightning_ranks.py OUT`."""

import json
import sys
from pathlib import Path

import lightning.pytorch as lightning
import torch
from torch import distributed

import cce
from cce.integrations.lightning import FinalizeCallback

NUM_IDS, DIM = 300, 8


class Clicks(lightning.LightningModule):
    """A table and a linear layer."""

    def __init__(self, seed=None):
        super().__init__()
        self.table = cce.create_embedding(
            cce.embeddings.ClusteredEmbedding.method, NUM_IDS, DIM, num_params=256, seed=seed
        )
        self.out = torch.nn.Linear(DIM, 1)

    def training_step(self, batch, _):
        ids, labels = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(self.out(self.table(ids)).squeeze(1), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


class Rows(Clicks):
    """The same with int8 rows, made without a seed."""

    def configure_model(self):
        self.table = cce.create_embedding("cce", NUM_IDS, DIM, num_rows=16)

    def configure_optimizers(self):
        return cce.optim.Adam(self, lr=0.05)


def fit(model, out, callback):
    """What a rank has after the fit."""
    ids = torch.randint(NUM_IDS, (640,), generator=torch.Generator().manual_seed(0))
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(ids, (ids % 3 == 0).float()), batch_size=16)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False, callbacks=[callback],
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, default_root_dir=out,
    )  # fmt: skip
    trainer.fit(model, rows)
    dense = model.table.to_dense().double()
    return {
        "columns": getattr(model.table, "num_columns", 0),
        "sum": dense.sum().item(),
        "square": dense.square().sum().item(),
    }


def main(out):
    torch.set_num_threads(1)
    lightning.seed_everything(1)
    found = {"rows": fit(Rows(seed=0), out, FinalizeCallback())}
    rank = distributed.get_rank()
    (out / f"{rank}.json").write_text(json.dumps(found))
    distributed.barrier()
    try:
        fit(Clicks(seed=rank), out, FinalizeCallback())
    except RuntimeError as error:
        (out / f"{rank}.txt").write_text(str(error))  # Lightning ends the other process as soon as one has failed


if __name__ == "__main__":
    main(Path(sys.argv[1]))
