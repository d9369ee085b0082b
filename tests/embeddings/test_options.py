"""What methods have in a training run, and rules for options: each accepts what it says, and names what broke it."""

import re

import pytest
from torch import nn

import cce
from cce.embeddings import METHODS, TrainingDefaults
from cce.embeddings.options import PAPER_SCHEDULES, choice, optional, whole, wholes, within
from cce.reclustering.refit.refit import AUTO_ROUNDS


def test_what_keeps_the_rules_passes():
    whole(0, 3)("a", 0)
    choice("x", "y")("a", "y")
    within(0.5, 2)("a", 2)
    wholes()("a", [1, 2, 3])
    wholes(2)("a", (4, 5))
    optional(whole(1))("a", None)


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (whole(0, 3), 3, "a must lie in [0, 3), got 3."),
        (choice("x", "y"), "z", "a must be one of x, y; got 'z'."),
        (within(0.5, 2), 3, "a must lie in [0.5, 2], got 3."),
        (within(0.5, 2), 0.4, "a must lie in [0.5, 2], got 0.4."),
        (wholes(2), (1, 0), "a must lie in [1, 2**63), got 0."),
        (wholes(2), (1, 2, 3), "a must be a list of 2 ints, got (1, 2, 3)."),
        (wholes(), "12", "a must be a list of ints, got '12'."),
        (optional(whole(1)), 0, "a must lie in [1, 2**31), got 0."),
    ],
)
def test_what_breaks_a_rule_is_rejected_with_it(check, value, message):
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=re.escape(message)):
        check("a", value)


def test_every_rule_is_of_an_option_that_the_class_has_and_asks():
    seen = 0
    for method, kind in METHODS.items():
        for name in kind.option_checks:
            seen += 1
            with pytest.raises((ValueError, TypeError), match=f"^{name} must"):
                cce.create_embedding(method, 1000, 16, compression=2, **{name: object()})
    assert seen >= 30


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
    ).steps == {75_000, 150_000}


def test_cce_trains_as_rows_that_ids_earn_and_is_never_clustered_before_it_is_finalized():
    ours = METHODS["cce"].training_defaults()
    assert ours == TrainingDefaults(num_rows=256, min_count=1, trains_as_rows=True, refits=AUTO_ROUNDS)
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
