"""What a run will cost, from a few steps of it."""

import pytest

from cce.training import Trainer
from cce.training.checkpoint import checkpoint_path, list_checkpoints
from cce.training.trial import try_out
from helpers.runs import tiny_config


@pytest.mark.slow
def test_it_trains_as_fast_as_the_run_itself(data, tmp_path):
    """Within an order of magnitude, in one of five tries: another process may have the core for most of a try."""
    config = tiny_config(data)

    def is_near(name: str) -> bool:
        trial, record = try_out(config, seconds=0.2), Trainer(config, tmp_path / name).run()
        is_as_fast = record.samples_per_second / 10 < trial.trained_per_second < record.samples_per_second * 10
        return is_as_fast and trial.scored_per_second > trial.trained_per_second

    assert any(is_near(name) for name in "abcde")


@pytest.mark.slow
def test_a_checkpoint_weighs_what_is_written(data, tmp_path):
    config = tiny_config(data)
    Trainer(config, tmp_path).run()
    path = checkpoint_path(tmp_path / "checkpoints", 26)
    assert path in list_checkpoints(tmp_path / "checkpoints")
    written = sum((path / f"{name}.safetensors").stat().st_size for name in ("model", "training"))
    assert try_out(config, seconds=0).checkpoint_nbytes == pytest.approx(written, rel=0.25)  # names, and their places


@pytest.mark.parametrize("changes", [{"batch_size": 800}, {"batch_size": 400, "accumulate": 2}, {"epochs": 10}])
def test_epochs_of_few_steps_are_measured_as_well(data, changes):
    assert try_out(tiny_config(data, **changes), seconds=10).trained_per_second > 0


def test_a_run_that_only_quantises_is_tried_without_the_one_it_starts_from(data, tmp_path):
    config = tiny_config(data, method="pq", epochs=0, start_from=str(tmp_path / "nowhere"))
    trial = try_out(config, seconds=0)
    assert trial.scored_per_second > 0
    assert trial.trained_per_second == float("inf")


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"method": "hash"}, 0),
        (
            {"cluster_every": None, "cluster_times": None, "cluster_at_epochs": [0.5, 1.0, 2.0]},
            2,
        ),  # not after the last batch
        ({"cluster_every": 10, "cluster_times": None}, 2),  # of 26 steps
        ({"cluster_every": 5, "cluster_times": 3}, 3),
        ({"cluster_every": None, "cluster_times": None, "cluster_schedule": "none"}, 0),
    ],
)
def test_clusterings_of_the_whole_run_are_counted_and_one_is_timed(data, changes, count):
    trial = try_out(tiny_config(data, **changes), seconds=0)
    assert trial.num_clusterings == count
    assert (trial.cluster_seconds > 0) == (count > 0)
    assert trial.refitted_per_second == float("inf")


@pytest.mark.slow
def test_rounds_of_refits_are_timed(data):
    trial = try_out(tiny_config(data, refits=2, cluster_every=None, cluster_times=None), seconds=0)
    assert 0 < trial.refitted_per_second < float("inf")
    assert trial.num_clusterings == 1  # of codes
    assert trial.cluster_seconds > 0
