"""Training that diverges ends at once, says where and what to try, and leaves good checkpoints only."""

import pytest
import torch

from cce.cli import main
from cce.training import Trainer
from cce.training.checkpoint import list_checkpoints, read_checkpoint
from cce.training.divergence import DivergedError, non_finite_parameter
from helpers.runs import tiny_config

HUGE = {"optimizer": "sgd", "lr": 1e30}


def all_finite(checkpoint):
    return all(tensor.isfinite().all() for tensor in checkpoint.model.values() if tensor.is_floating_point())


def test_a_huge_learning_rate_ends_at_the_first_bad_loss(data, tmp_path):
    message = (
        r"^loss must be finite, got (nan|inf) at step 2 with learning rate 1e\+30: training diverged\. "
        r"Try a lower lr or more warmup_steps; there is no checkpoint yet\.$"
    )
    with pytest.raises(DivergedError, match=message):
        Trainer(tiny_config(data, **HUGE), tmp_path / "run").run()
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == []


def test_the_shell_says_it_in_one_line_and_exits_with_2(data, tmp_path, capsys):
    words = ["--cap", "320", "--embedding-dim", "8", "--lr", "1e30", "--out", str(tmp_path / "run"), "--json"]
    assert main(["train", str(data), *words, "--threads", "1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "must be finite, got " in err
    assert "with learning rate 1e+30: training diverged. Try a lower lr or more warmup_steps" in err
    assert not (tmp_path / "run" / "record.jsonl").exists()


def diverging(data, out, step, **changes):
    """A trainer whose weights are spoiled right before a step."""
    trainer = Trainer(tiny_config(data, **changes), out)
    train_step = trainer.train_step

    def spoiled(*args):
        if trainer.session.step == step:
            with torch.no_grad():
                trainer.session.model.top[0].weight.fill_(float("nan"))
        train_step(*args)

    trainer.train_step = spoiled
    return trainer


def test_the_last_good_checkpoint_is_kept_and_named(data, tmp_path):
    with pytest.raises(DivergedError, match=r"at step 10 .*the last good checkpoint is .*step-0000000009\.$"):
        diverging(data, tmp_path / "run", 9).run()
    kept = list_checkpoints(tmp_path / "run" / "checkpoints")
    assert [path.name[-1] for path in kept][-1] == "9"
    assert all(all_finite(read_checkpoint(path)) for path in kept)


def test_what_a_step_spoils_is_neither_saved_nor_clustered(data, tmp_path):
    for name, step in (("saved", 4), ("clustered", 7)):  # a validation after step 4, a clustering after step 7
        trainer = Trainer(tiny_config(data), tmp_path / name)
        after = trainer._after_step

        def spoil_then_go_on(num_rows, trainer=trainer, after=after, step=step):
            if trainer.session.step == step:
                with torch.no_grad():
                    trainer.session.model.tables.tables["c0"].codebook.view(-1)[3] = float("inf")
            after(num_rows)

        trainer._after_step = spoil_then_go_on
        message = rf"^tables\.tables\.c0\.codebook must be finite, got NaN or infinity at step {step} "
        with pytest.raises(DivergedError, match=message):
            trainer.run()
        assert all(all_finite(read_checkpoint(p)) for p in list_checkpoints(tmp_path / name / "checkpoints"))


def test_logits_that_overflow_at_a_validation_are_a_divergence(data, tmp_path):
    trainer = Trainer(tiny_config(data), tmp_path / "run")
    after = trainer._after_step

    def blow_up(num_rows):
        if trainer.session.step == 4:
            with torch.no_grad():
                for parameter in trainer.session.model.top.parameters():
                    parameter.fill_(3e38)
        after(num_rows)

    trainer._after_step = blow_up
    with pytest.raises(DivergedError, match=r"^logits must be finite, got .* at step 4 with learning rate 0\.01"):
        trainer.run()
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == []


def test_float16_has_a_hint_of_its_own(data, tmp_path):
    with pytest.raises(DivergedError, match="or more warmup_steps, or codebook_dtype bfloat16;"):
        Trainer(tiny_config(data, optimizer="sgd", lr=6e4, codebook_dtype="float16"), tmp_path / "run").run()


def test_a_parameter_that_is_not_trained_may_hold_anything():
    model = torch.nn.Linear(2, 2)
    assert non_finite_parameter(model) is None
    with torch.no_grad():
        model.bias[1] = float("-inf")
    assert non_finite_parameter(model) == "bias"
    model.bias.requires_grad_(requires_grad=False)
    assert non_finite_parameter(model) is None
