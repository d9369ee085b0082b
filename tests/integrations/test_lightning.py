"""Lightning's Trainer finalizes tables at its end, and resumes to the bit."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import cce

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Lightning's own

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed: the extra lightning")
    from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint, StochasticWeightAveraging

    from cce.integrations.lightning import FinalizeCallback

NUM_IDS, DIM = 300, 8


class Clicks(lightning.LightningModule):
    """A table of int8 rows and a linear layer, made in the constructor, so that a checkpoint can be loaded."""

    def __init__(self):
        super().__init__()
        self.table = cce.create_embedding("cce", NUM_IDS, DIM, seed=0, num_rows=16)
        self.out = torch.nn.Linear(DIM, 1)
        torch.nn.init.ones_(self.out.weight)

    def training_step(self, batch, _):
        ids, labels = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(self.out(self.table(ids)).squeeze(1), labels)

    def configure_optimizers(self):
        return cce.optim.Adam(self, lr=0.05)

    def validation_step(self, batch, _):
        del batch
        self.log("score", float(self.current_epoch))  # best after the first epoch


def rows(num_rows=640, batch_size=16):
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(NUM_IDS, (num_rows,), generator=g)
    data = torch.utils.data.TensorDataset(ids, (ids % 3 == 0).float())
    return torch.utils.data.DataLoader(data, batch_size=batch_size)


def trainer(folder, callback, **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    callbacks = [callback, *options.pop("callbacks", [])]
    return lightning.Trainer(default_root_dir=folder, callbacks=callbacks, **quiet, **options)


def test_two_processes_hold_the_same_table(tmp_path):
    script = Path(__file__).parents[1] / "helpers" / "lightning_ranks.py"
    words = [sys.executable, "-W", "ignore", str(script), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert (tmp_path / "0.txt").exists(), done.stderr[-2000:]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["rows"]["columns"] == 4
    assert first["rows"]["square"] > 0
    different_seeds = (tmp_path / "0.txt").read_text()
    assert " of table 'table' must be the same on all ranks, but ranks 0 and 1 differ" in different_seeds


def plain_loop(model, num_epochs=1, clip=None):
    optimizer = model.configure_optimizers()
    for _ in range(num_epochs):
        for batch in rows():
            optimizer.zero_grad()
            model.training_step(batch, 0).backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    return model


def seeded():
    torch.manual_seed(0)
    return Clicks()


@pytest.mark.parametrize("clip", [None, 1e-3])
def test_int8_rows_train_as_in_a_plain_loop_and_are_finalized_at_the_end(tmp_path, clip):
    model, callback = seeded(), FinalizeCallback(seed=0)
    fit = trainer(tmp_path, callback, max_epochs=1, enable_checkpointing=False, gradient_clip_val=clip)
    fit.fit(model, rows())
    assert model.table.is_final
    assert callback.finalized.tables[0].name == "table"
    by_hand = plain_loop(seeded(), clip=clip)
    cce.finalize(by_hand, seed=0)
    assert torch.equal(model.table.to_dense(), by_hand.table.to_dense())
    assert torch.equal(model.out.weight, by_hand.out.weight)


def test_the_callback_refits_and_takes_the_options_of_finalize(tmp_path):
    calls = []

    def refit(model):
        assert model.table.is_final
        calls.append(cce.refit(model.model(), lambda: iter(rows()), rounds=1, progress=False))

    class Refitted(Clicks):
        def model(self):
            return torch.nn.Sequential(self.table, self.out, torch.nn.Flatten(0))

    torch.manual_seed(0)
    model, callback = Refitted(), FinalizeCallback(num_columns=2, num_rows=8, seed=0, refit=refit)
    trainer(tmp_path, callback, max_epochs=1, enable_checkpointing=False).fit(model, rows())
    assert model.table.codebook.shape == (2 * 8, DIM // 2)
    assert len(calls) == 1
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_colums'"):
        FinalizeCallback(num_colums=2)


def test_int8_rows_train_in_bf16(tmp_path):
    model = seeded()
    before = float(model.training_step(next(iter(rows())), 0))
    fit = trainer(tmp_path, FinalizeCallback(), max_epochs=3, enable_checkpointing=False, precision="bf16-mixed")
    fit.fit(model, rows())
    assert model.table.is_final
    assert float(model.training_step(next(iter(rows())), 0)) < before


@pytest.mark.parametrize("averaging", [EMAWeightAveraging(), StochasticWeightAveraging(swa_lrs=0.01)])
def test_averages_of_int8_rows_are_rejected_before_anything_is_trained(averaging, tmp_path):
    model, name = seeded(), type(averaging).__name__
    fit = trainer(tmp_path, FinalizeCallback(), max_epochs=2, enable_checkpointing=False, callbacks=[averaging])
    with pytest.raises(ValueError, match=f"must not average weights while tables train as int8 rows, got {name}"):
        fit.fit(model, rows())
    assert model.table.rows.num_rows == 1
    cce.finalize(plain_loop(model))
    fit.fit(model, rows())  # codebooks can be averaged


def test_rows_that_are_clipped_end_elsewhere():
    free, clipped = plain_loop(seeded()), plain_loop(seeded(), clip=1e-3)
    assert not torch.equal(free.table.to_dense(), clipped.table.to_dense())


def test_the_best_checkpoint_is_what_becomes_final(tmp_path):
    saving = ModelCheckpoint(tmp_path, monitor="score", mode="min")
    model, callback = seeded(), FinalizeCallback(seed=0)
    fit = trainer(tmp_path, callback, max_epochs=3, callbacks=[saving])
    fit.fit(model, rows(), rows(16))
    best = plain_loop(seeded())
    cce.finalize(best, seed=0)
    assert torch.equal(model.table.to_dense(), best.table.to_dense())


def test_int8_rows_resume_to_the_bit_and_checkpoints_of_both_forms_load(tmp_path):
    whole = seeded()
    trainer(tmp_path / "whole", FinalizeCallback(seed=0), max_epochs=2).fit(whole, rows())
    saving = ModelCheckpoint(tmp_path / "half", save_last=True)
    half = seeded()
    trainer(tmp_path / "half", saving, max_epochs=1).fit(half, rows())
    resumed = Clicks()
    fit = trainer(tmp_path / "half", FinalizeCallback(seed=0), max_epochs=2)
    fit.fit(resumed, rows(), ckpt_path=tmp_path / "half" / "last.ckpt", weights_only=True)
    assert torch.equal(resumed.table.to_dense(), whole.table.to_dense())
    fit.save_checkpoint(tmp_path / "final.ckpt")
    for path, model in ((tmp_path / "half" / "last.ckpt", half), (tmp_path / "final.ckpt", resumed)):
        loaded = Clicks.load_from_checkpoint(path, weights_only=True)
        assert loaded.table.is_final == model.table.is_final
        assert torch.equal(loaded.table.to_dense(), model.table.to_dense())
