"""Early stopping, by hand; and training that diverges: it ends at once and leaves good checkpoints only."""

import json
import math

import pytest
import torch

from cce.cli import main
from cce.training import Trainer
from cce.training.checkpoint import list_checkpoints, read_checkpoint
from cce.training.stopping import DivergedError, EarlyStopping, non_finite_parameter
from helpers.runs import tiny_config


def told(*epochs):
    stopping, stops = EarlyStopping(), []
    for epoch in epochs:
        for step, bce in enumerate(epoch):
            stopping.add(bce, step)
        stops.append(stopping.end_epoch())
    return stopping, stops


def test_an_epoch_whose_best_is_worse_than_the_last_ones_ends_training():
    assert told([0.6, 0.5], [0.55, 0.49], [0.495, 0.51])[1] == [False, False, True]


def test_a_worse_end_of_an_epoch_is_no_reason_and_nor_is_a_tie():
    assert told([0.6, 0.5], [0.5, 0.9])[1] == [False, False]


def test_it_is_the_last_epoch_that_counts_not_the_best():
    assert told([0.5], [0.6], [0.55])[1] == [False, True, False]


def test_the_best_of_all_is_known():
    stopping = EarlyStopping()
    assert [stopping.add(bce, step) for step, bce in enumerate([0.6, 0.5, math.nan, 0.5, 0.4])] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert (stopping.best, stopping.best_step) == (0.4, 4)


def test_what_is_not_a_number_ends_training_after_a_number():
    assert told([0.5], [math.nan])[1] == [False, True]


def test_it_goes_on_where_it_was():
    first, _ = told([0.6, 0.5])
    second = EarlyStopping()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.add(0.55, 9)
    assert second.end_epoch()
    assert second.best == 0.5


def test_of_a_metric_of_which_more_is_better_less_ends_training():
    stopping = EarlyStopping("auc")
    assert [stopping.add(auc, step) for step, auc in enumerate([0.6, 0.7, 0.65])] == [True, True, False]
    assert not stopping.end_epoch()
    assert not stopping.add(0.69, 3)
    assert stopping.end_epoch()
    assert stopping.best_step == 1


def test_calibration_is_best_near_1():
    stopping = EarlyStopping("calibration")
    assert [stopping.add(ratio, step) for step, ratio in enumerate([0.5, 1.3, 1.4, 0.9])] == [True, True, False, True]


HUGE = {"optimizer": "sgd", "lr": 1e30}


def all_finite(checkpoint):
    return all(tensor.isfinite().all() for tensor in checkpoint.model.values() if tensor.is_floating_point())


def test_a_huge_learning_rate_ends_at_the_first_bad_loss(data, tmp_path):
    message = (
        r"^loss must be finite, got (nan|inf) at step 2 with learning rate 1e\+30: training diverged\. "
        r"Try a lower lr; there is no checkpoint yet\.$"
    )
    with pytest.raises(DivergedError, match=message):
        Trainer(tiny_config(data, **HUGE), tmp_path / "run").run()
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == []


def test_the_shell_says_it_in_one_line_and_exits_with_2(data, tmp_path, capsys):
    words = ["--cap", "320", "--embedding-dim", "8", "--lr", "1e30", "--out", str(tmp_path / "run"), "--json"]
    assert main(["train", str(data), *words, "--set", "threads=1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "must be finite, got " in err
    assert "with learning rate 1e+30: training diverged. Try a lower lr" in err
    assert not (tmp_path / "run" / "record.jsonl").exists()


def diverging(data, out, step, **changes):
    """A trainer whose weights are spoiled right before a step."""
    trainer = Trainer(tiny_config(data, **changes), out)
    train_step = trainer.training.train_step

    def spoiled(*args):
        if trainer.session.step == step:
            with torch.no_grad():
                trainer.session.model.top[0].weight.fill_(float("nan"))
        train_step(*args)

    trainer.training.train_step = spoiled
    return trainer


@pytest.mark.slow
def test_the_last_good_checkpoint_is_kept_and_named(data, tmp_path):
    with pytest.raises(DivergedError, match=r"at step 10 .*the last checkpoint is .*step-0000000009\.$"):
        diverging(data, tmp_path / "run", 9).run()
    kept = list_checkpoints(tmp_path / "run" / "checkpoints")
    assert [path.name[-1] for path in kept][-1] == "9"
    assert all(all_finite(read_checkpoint(path)) for path in kept)


def test_what_a_step_spoils_is_neither_saved_nor_clustered(data, tmp_path):
    for name, step in (("saved", 4), ("clustered", 7)):  # a validation after step 4, a clustering after step 7
        trainer = Trainer(tiny_config(data), tmp_path / name)
        after = trainer.training._after_step

        def spoil_then_go_on(num_rows, trainer=trainer, after=after, step=step):
            if trainer.session.step == step:
                with torch.no_grad():
                    trainer.session.model.tables.tables["c0"].codebook.view(-1)[3] = float("inf")
            after(num_rows)

        trainer.training._after_step = spoil_then_go_on
        message = rf"^tables\.tables\.c0\.codebook must be finite, got NaN or infinity at step {step} "
        with pytest.raises(DivergedError, match=message):
            trainer.run()
        assert all(all_finite(read_checkpoint(p)) for p in list_checkpoints(tmp_path / name / "checkpoints"))


def test_logits_that_overflow_at_a_validation_are_a_divergence(data, tmp_path):
    trainer = Trainer(tiny_config(data), tmp_path / "run")
    after = trainer.training._after_step

    def blow_up(num_rows):
        if trainer.session.step == 4:
            with torch.no_grad():
                for parameter in trainer.session.model.top.parameters():
                    parameter.fill_(3e38)
        after(num_rows)

    trainer.training._after_step = blow_up
    with pytest.raises(DivergedError, match=r"^logits must be finite, got .* at step 4 with learning rate 0\.01"):
        trainer.run()
    assert list_checkpoints(tmp_path / "run" / "checkpoints") == []


def test_a_parameter_that_is_not_trained_may_hold_anything():
    model = torch.nn.Linear(2, 2)
    assert non_finite_parameter(model) is None
    with torch.no_grad():
        model.bias[1] = float("-inf")
    assert non_finite_parameter(model) == "bias"
    model.bias.requires_grad_(requires_grad=False)
    assert non_finite_parameter(model) is None
