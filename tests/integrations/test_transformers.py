"""Hugging Face's Trainer finalizes tables at its end, and goes on from a checkpoint to the bit."""

import subprocess
import sys
import warnings
from pathlib import Path

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


def make_trainer(folder, model, callback, optimizer, *, epochs=2, **options):
    arguments = TrainingArguments(
        str(folder), per_device_train_batch_size=16, num_train_epochs=epochs, learning_rate=0.05, report_to=[],
        use_cpu=True, disable_tqdm=True, save_strategy="steps", save_steps=20,
        lr_scheduler_type="constant", seed=0, **options,
    )  # fmt: skip
    sets = {"train_dataset": rows(), "eval_dataset": rows()[:32]}
    return Trainer(model, arguments, **sets, callbacks=[callback], optimizers=(optimizer, None)), callback


def trained(folder, **options):
    """The vectors of a table that was trained and finalized."""
    torch.manual_seed(0)
    model = Clicks()
    trainer, _ = make_trainer(folder, model, FinalizeCallback(seed=0), cce.optim.Adam(model, lr=0.05), **options)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert model.table.is_final
    assert trainer.evaluate()["eval_loss"] < before
    return model.table.to_dense()


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


@pytest.mark.filterwarnings("ignore")
def test_int8_rows_train_in_bf16_and_are_clipped(tmp_path):
    found = [trained(tmp_path, **options) for options in ({}, {"bf16": True}, {"max_grad_norm": 1e-3})]
    assert not any(torch.equal(one, other) for one, other in ((found[0], found[1]), (found[0], found[2])))


@pytest.mark.filterwarnings("ignore")
def test_the_best_checkpoint_is_what_becomes_final(tmp_path):
    """The best is the one of the highest loss here, which is the first."""
    best = {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 20, "greater_is_better": True}
    whole = trained(tmp_path / "best", metric_for_best_model="loss", **best)
    assert torch.equal(whole, trained(tmp_path / "first", epochs=1))
    assert not torch.equal(whole, trained(tmp_path / "last"))


def test_two_processes_hold_the_same_final_table_of_the_rows_of_both(tmp_path):
    script = Path(__file__).parents[1] / "helpers" / "transformers_ranks.py"
    run = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*run, str(script), str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert first["world_size"] == 2
    assert first["num_ids"] == second["num_ids"] == first["ids"]  # each process saw half of the rows
    assert first["loss"] == second["loss"] < 0.6  # a constant has 0.64
    assert first["state"].keys() == second["state"].keys()
    assert all(torch.equal(tensor, second["state"][name]) for name, tensor in first["state"].items())
    assert len(first["state"]["table.codebook"])
