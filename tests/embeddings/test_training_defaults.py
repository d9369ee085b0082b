"""What methods would have in a training run: when to cluster, and which ids learn pointers."""

import pytest
import torch
from torch import nn

import cce
from cce.budget import FULL_SIZED
from cce.embeddings import METHODS, TrainingDefaults
from cce.embeddings.training_defaults import PAPER_SCHEDULES

COUNTS = torch.tensor([0, 9, 4, 2, 1])
WITHOUT_PRESET = sorted(set(METHODS) - {"cce", "cce-paper", "quantized"})


def test_the_schedules_of_the_paper():
    assert cce.paper_schedule("best-of-10-epochs") == [1, 2, 3, 4, 5, 6]
    assert cce.paper_schedule("one-epoch") == [0.25, 0.5]
    assert cce.paper_schedule("strategy-1", times=4) == [0.125, 0.25, 0.375, 0.5]
    assert cce.paper_schedule("strategy-2", times=2) == pytest.approx([1 / 3, 2 / 3])
    assert cce.paper_schedule("strategy-3", times=3) == [0.25, 0.5, 0.75]
    with pytest.raises(ValueError, match="name must be one of best-of-10-epochs"):
        cce.paper_schedule("weekly")
    for name in PAPER_SCHEDULES:
        model = nn.Sequential(cce.ClusteredEmbedding(20, 4, num_rows=2))
        schedule = cce.ClusterSchedule(model, at_epochs=cce.paper_schedule(name), steps_per_epoch=300_000)
        assert schedule.next_step <= 300_000
    assert cce.ClusterSchedule(model, at_epochs=cce.paper_schedule("one-epoch"), steps_per_epoch=300_000).steps == {
        75_000,
        150_000,
    }


def test_cce_trains_as_codes_and_the_paper_s_is_clustered():
    ours, paper = (METHODS[method].training_defaults() for method in ("cce", "cce-paper"))
    assert (ours.code_bits, ours.refits, ours.min_count, ours.cluster_epochs(10)) == (8, 5, 2, [])
    assert ours.options == {"share_tail": True, "start_scale": "dlrm", "max_rows": 256}
    assert paper == TrainingDefaults(min_count=1)
    assert (paper.cluster_epochs(1), paper.cluster_epochs(10)) == ([0.25, 0.5], [1, 2, 3, 4, 5, 6])
    assert (ours.num_learned(COUNTS), paper.num_learned(COUNTS)) == (4, 5)


@pytest.mark.parametrize("method", WITHOUT_PRESET)
@pytest.mark.parametrize("preset", ["tuned", "paper"])
def test_a_method_without_presets_has_the_schedule_of_the_paper_and_no_pointers_to_count(method, preset):
    defaults = METHODS[method].training_defaults(preset)
    is_baseline = preset == "paper" and method in FULL_SIZED  # the paper's baseline is DLRM
    options = {"start_scale": "dlrm"} if is_baseline else {}
    assert defaults == TrainingDefaults(options)
    assert defaults.min_count is None
    assert defaults.cluster_epochs(1) == [0.25, 0.5]
    assert defaults.cluster_epochs(10) == [1, 2, 3, 4, 5, 6]
    assert defaults.num_learned(COUNTS) == 0


@pytest.mark.parametrize(("min_count", "wanted"), [(1, 5), (2, 4), (3, 3), (9, 2), (10, 1)])
def test_frequent_ids_are_the_first_whatever_the_count_of_unseen_ones(min_count, wanted):
    assert TrainingDefaults().num_learned(COUNTS, min_count=min_count) == wanted
    assert TrainingDefaults(min_count=min_count).num_learned(COUNTS) == wanted


def test_all_ids_learn_if_counts_do_not_matter():
    assert TrainingDefaults(min_count=1).num_learned(torch.zeros(6)) == 6


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        (torch.zeros(2, 2), {}, r"counts must have shape \(num_embeddings,\), got \(2, 2\)\."),
        (torch.zeros(0), {}, r"counts must have shape \(num_embeddings,\), got \(0,\)\."),
        (COUNTS, {"min_count": 0}, r"min_count must lie in \[1, 2\*\*63\), got 0\."),
    ],
)
def test_wrong_counts_are_rejected(counts, options, message):
    with pytest.raises(ValueError, match=message):
        TrainingDefaults(min_count=5).num_learned(counts, **options)


def test_what_is_no_tensor_and_no_number_of_epochs_is_rejected():
    with pytest.raises(TypeError, match="counts must be a Tensor, got"):
        TrainingDefaults().num_learned([1, 2])
    with pytest.raises(ValueError, match="num_epochs must lie in"):
        TrainingDefaults().cluster_epochs(-1)


def test_codes_of_their_own_are_for_ids_that_occur_often():
    tuned, paper = (METHODS["quantized"].training_defaults(preset) for preset in ("tuned", "paper"))
    assert (tuned.min_count, paper.min_count) == (3, 1)
    assert tuned.num_learned(COUNTS, min_count=4) == 3
