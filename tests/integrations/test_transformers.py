"""Hugging Face's Trainer finalizes tables at its end, and goes on from a checkpoint to the bit."""

import warnings

import pytest
import torch

import cce

pytestmark = pytest.mark.slow

pytest.importorskip("accelerate", reason="accelerate is not installed: the extra transformers")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import Trainer, TrainingArguments

    from cce.integrations.transformers import FinalizeCallback

NUM_IDS = 300


class Clicks(torch.nn.Module):
    """What the Trainer wants: keywords in, loss out."""

    def __init__(self):
        super().__init__()
        self.table = cce.create_embedding("cce", NUM_IDS, 8, seed=0, num_rows=16)
        self.out = torch.nn.Linear(8, 1)
        torch.nn.init.ones_(self.out.weight)

    def forward(self, ids, labels):
        logits = self.out(self.table(ids)).squeeze(1)
        return {"loss": torch.nn.functional.binary_cross_entropy_with_logits(logits, labels), "logits": logits}


def rows():
    ids = torch.randint(NUM_IDS, (320,), generator=torch.Generator().manual_seed(0)).tolist()
    return [{"ids": each, "labels": float(each % 3 == 0)} for each in ids]


def make_trainer(folder, model, callback, optimizer):
    arguments = TrainingArguments(
        str(folder), per_device_train_batch_size=16, num_train_epochs=2, learning_rate=0.05, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="steps", save_steps=20,
        lr_scheduler_type="constant", seed=0,
    )  # fmt: skip
    return Trainer(model, arguments, train_dataset=rows(), callbacks=[callback], optimizers=(optimizer, None)), callback


@pytest.mark.filterwarnings("ignore")
def test_int8_rows_are_finalized_at_the_end_and_resume_to_the_bit(tmp_path):
    def make(folder):
        torch.manual_seed(0)
        model = Clicks()
        return model, *make_trainer(folder, model, FinalizeCallback(seed=0), cce.optim.Adam(model, lr=0.05))

    whole, trainer, callback = make(tmp_path / "run")
    trainer.train()
    assert whole.table.is_final
    assert [table.name for table in callback.finalized.tables] == ["table"]
    assert len(torch.unique(whole.table.to_dense(), dim=0)) > 10  # not all zeros
    resumed, trainer, _ = make(tmp_path / "run")
    trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-20"))
    assert torch.equal(resumed.table.to_dense(), whole.table.to_dense())
