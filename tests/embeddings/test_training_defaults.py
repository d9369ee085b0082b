"""What methods would have in a training run: when to cluster, and which ids have rows."""

import pytest
from torch import nn

import cce
from cce.embeddings import METHODS, TrainingDefaults
from cce.embeddings.training_defaults import PAPER_SCHEDULES


def test_the_schedules_of_the_paper():
    assert cce.embeddings.paper_schedule("best-of-10-epochs") == [1, 2, 3, 4, 5, 6]
    assert cce.embeddings.paper_schedule("one-epoch") == [0.25, 0.5]
    assert cce.embeddings.paper_schedule("strategy-1", times=4) == [0.125, 0.25, 0.375, 0.5]
    assert cce.embeddings.paper_schedule("strategy-2", times=2) == pytest.approx([1 / 3, 2 / 3])
    assert cce.embeddings.paper_schedule("strategy-3", times=3) == [0.25, 0.5, 0.75]
    with pytest.raises(ValueError, match="name must be one of best-of-10-epochs"):
        cce.embeddings.paper_schedule("weekly")
    for name in PAPER_SCHEDULES:
        model = nn.Sequential(cce.embeddings.ClusteredEmbedding(20, 4, num_rows=2))
        schedule = cce.reclustering.ClusterSchedule(
            model, at_epochs=cce.embeddings.paper_schedule(name), steps_per_epoch=300_000
        )
        assert schedule.next_step <= 300_000
    assert cce.reclustering.ClusterSchedule(
        model, at_epochs=cce.embeddings.paper_schedule("one-epoch"), steps_per_epoch=300_000
    ).steps == {
        75_000,
        150_000,
    }


def test_cce_trains_as_rows_that_ids_earn_and_is_never_clustered_before_it_is_finalized():
    ours = METHODS["cce"].training_defaults()
    assert ours == TrainingDefaults(num_rows=256, min_count=1, trains_as_rows=True, refits=5)
    assert ours.cluster_epochs(10) == []


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"cce"}))
def test_other_methods_have_the_schedule_of_the_paper_and_no_rows_to_earn(method):
    defaults = METHODS[method].training_defaults()
    assert defaults == TrainingDefaults()
    assert (defaults.min_count, defaults.num_rows, defaults.trains_as_rows) == (None, None, False)
    assert defaults.cluster_epochs(1) == [0.25, 0.5]
    assert defaults.cluster_epochs(10) == [1, 2, 3, 4, 5, 6]


def test_what_is_no_number_of_epochs_is_rejected():
    with pytest.raises(ValueError, match="num_epochs must lie in"):
        TrainingDefaults().cluster_epochs(-1)
