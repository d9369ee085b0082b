"""Hugging Face's Trainer finalizes tables at its end, or clusters them, and goes on from a checkpoint to the bit."""

import warnings

import pytest
import torch

import cce

pytestmark = pytest.mark.slow

pytest.importorskip("accelerate", reason="accelerate is not installed: the extra transformers")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import Trainer, TrainingArguments

    from cce.integrations.transformers import ClusterCallback, FinalizeCallback

NUM_IDS = 300


class Clicks(torch.nn.Module):
    """What the Trainer wants: keywords in, loss out."""

    def __init__(self, method="cce-paper"):
        super().__init__()
        sizes = {"num_rows": 16} if method == "cce" else {"num_params": 256}
        self.table = cce.create_embedding(method, NUM_IDS, 8, seed=0, **sizes)
        self.out = torch.nn.Linear(8, 1)
        torch.nn.init.ones_(self.out.weight)

    def forward(self, ids, labels):
        logits = self.out(self.table(ids)).squeeze(1)
        return {"loss": torch.nn.functional.binary_cross_entropy_with_logits(logits, labels), "logits": logits}


def rows():
    ids = torch.randint(NUM_IDS, (320,), generator=torch.Generator().manual_seed(0)).tolist()
    return [{"ids": each, "labels": float(each % 3 == 0)} for each in ids]


def make_trainer(folder, model, callback=None, optimizer=None, **options):
    arguments = TrainingArguments(
        str(folder), per_device_train_batch_size=16, num_train_epochs=2, learning_rate=0.05, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="steps", save_steps=20, restore_callback_states_from_checkpoint=True,
        lr_scheduler_type="constant", seed=0, **options,
    )  # fmt: skip
    callback = callback or ClusterCallback(every=8)
    given = {} if optimizer is None else {"optimizers": (optimizer, None)}
    return Trainer(model, arguments, train_dataset=rows(), callbacks=[callback], **given), callback


@pytest.mark.filterwarnings("ignore")
def test_it_clusters_and_a_resumed_run_ends_as_it_would_have(tmp_path):
    torch.manual_seed(0)
    whole = Clicks()
    trainer, callback = make_trainer(tmp_path / "run", whole)
    trainer.train()
    assert callback.schedule.num_steps == 40
    assert callback.schedule.clustered == ["table"]
    resumed = Clicks()
    trainer, callback = make_trainer(tmp_path / "run", resumed)
    trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-20"))
    assert torch.equal(resumed.table.to_dense(), whole.table.to_dense())


def test_what_is_wrong_is_said_at_once():
    with pytest.raises(ValueError, match="give one of every, at_steps"):
        ClusterCallback()


@pytest.mark.filterwarnings("ignore")
def test_int8_rows_are_finalized_at_the_end_and_resume_to_the_bit(tmp_path):
    def make(folder):
        torch.manual_seed(0)
        model = Clicks("cce")
        return model, *make_trainer(folder, model, FinalizeCallback(seed=0), cce.optim.Adam(model, lr=0.05))

    whole, trainer, callback = make(tmp_path / "run")
    trainer.train()
    assert whole.table.is_final
    assert [table.name for table in callback.finalized.tables] == ["table"]
    assert len(torch.unique(whole.table.to_dense(), dim=0)) > 10  # not all zeros
    resumed, trainer, _ = make(tmp_path / "run")
    trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-20"))
    assert torch.equal(resumed.table.to_dense(), whole.table.to_dense())
