"""Two processes of Hugging Face's Trainer train int8 rows under DDP, and finalize them: `transformers_ranks.py OUT`.

`torch.distributed.run` starts them. Each leaves its loss before and after, and its model.
"""

import os
import sys
import warnings
from pathlib import Path

import torch
from torch import distributed

import cce

warnings.simplefilter("ignore")

from transformers import Trainer, TrainingArguments  # noqa: E402

from cce.integrations.transformers import FinalizeCallback  # noqa: E402

NUM_IDS = 300


class Clicks(torch.nn.Module):
    """What the Trainer wants: keywords in, loss out."""

    def __init__(self):
        super().__init__()
        self.table = cce.create_embedding("cce", NUM_IDS, 8, seed=0, num_rows=16)
        self.out = torch.nn.Linear(8, 1)

    def forward(self, ids, labels):
        logits = self.out(self.table(ids)).squeeze(1)
        return {"loss": torch.nn.functional.binary_cross_entropy_with_logits(logits, labels), "logits": logits}


def main(out):
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)  # DDP sends the network of rank 0
    ids = torch.randint(NUM_IDS, (640,), generator=torch.Generator().manual_seed(0)).tolist()
    rows = [{"ids": each, "labels": float(each % 3 == 0)} for each in ids]
    model, callback = Clicks(), FinalizeCallback(seed=0)
    arguments = TrainingArguments(
        str(out / "run"), per_device_train_batch_size=16, num_train_epochs=3, learning_rate=0.05, report_to=[],
        use_cpu=True, ddp_backend="gloo", disable_tqdm=True, save_strategy="no", lr_scheduler_type="constant",
    )  # fmt: skip
    sets = {"train_dataset": rows, "eval_dataset": rows}
    trainer = Trainer(model, arguments, **sets, callbacks=[callback], optimizers=(cce.optim.Adam(model, lr=0.05), None))
    trainer.train()
    (table,) = callback.finalized.tables
    found = {"state": model.state_dict(), "num_ids": table.num_ids, "world_size": distributed.get_world_size()}
    torch.save(found | {"loss": trainer.evaluate()["eval_loss"], "ids": len(set(ids))}, out / f"{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
