"""The paper's rule, by hand."""

import json
import math

from cce.training.early_stopping import EarlyStopping


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
