"""Optimizers that cannot train the tables of a run as it says are rejected before it begins."""

import pytest

from cce.training.optimizer_rules import check_float16
from cce.training.options import make_config


@pytest.mark.parametrize(
    ("optimizer", "options", "least"),
    [
        ("adam", {}, 0.005459),
        ("adamw", {"betas": (0.9, 0.99)}, 0.001726),
        ("nadam", {}, 0.005459),
        ("radam", {"betas": [0.9, 0.5]}, 0.0002441),
        ("sparse_adam", {}, 0.005459),
        ("lazy_adam", {}, 0.005459),
        ("rmsprop", {}, 0.001726),
        ("rmsprop", {"alpha": 0.9}, 0.0005459),
        ("adagrad", {}, 0.0001726),
    ],
)
def test_eps_must_cover_the_largest_gradient_whose_square_is_lost(optimizer, options, least):
    check_float16(optimizer, options | {"eps": 1.001 * least})
    for eps in ({"eps": 0.999 * least}, {"eps": 1e-7}, {"eps": float("nan")}, {"eps": "1"}, {}):
        with pytest.raises(ValueError, match=f"needs optimizer_options eps of at least {least} with optimizer"):
            check_float16(optimizer, options | eps)


def test_optimizers_without_squares_need_nothing_and_unknown_ones_are_rejected():
    for optimizer in ("sgd", "rowwise_adagrad", "asgd", "rprop"):
        check_float16(optimizer, {})
    with pytest.raises(ValueError, match=r"'float16' must have an optimizer of sgd, rowwise_adagrad, .*; got 'adamax'"):
        check_float16("adamax", {"eps": 1.0})


@pytest.mark.parametrize(
    ("optimizer", "options", "message"),
    [
        ("adam", {"betas": 0.9}, "optimizer_options betas must be two numbers, got 0.9"),
        ("adam", {"betas": (0.9, 1.0)}, r"optimizer_options betas must lie in \[0, 1\), got \(0.9, 1.0\)"),
        ("rmsprop", {"alpha": 2.0}, r"optimizer_options alpha must lie in \[0, 1\), got 2.0"),
    ],
)
def test_what_the_rule_needs_is_checked(optimizer, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check_float16(optimizer, options)


def config(**values):
    return make_config({"data": "d", "method": "full"} | values)


@pytest.mark.parametrize("optimizer", ["rowwise_adagrad", "lazy_adam"])
def test_weight_decay_goes_with_sparse_gradients_where_it_is_lazy(optimizer):
    assert config(sparse=True, optimizer=optimizer, weight_decay=0.1).weight_decay == 0.1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"sparse": True, "optimizer": "adagrad", "weight_decay": 0.1},
            "weight_decay with sparse must have an optimizer of rowwise_adagrad, lazy_adam; got 0.1 and 'ada",
        ),
        (
            {"codebook_dtype": "bfloat16", "weight_decay": 0.1, "optimizer": "sgd"},
            "weight_decay of 16-bit tables would be rounded off: take 0, or adam; got 0.1 with 'bfloat16' and 'sgd'.",
        ),
        (
            {"optimizer_options": {"weight_decay": 0.1}},
            "optimizer_options must leave out weight_decay: it is an option of the run, got 0.1.",
        ),
        (
            {"optimizer_options": {"row_lr": 0.1}, "weight_decay": 0.1},
            "optimizer_options must leave out row_lr: it is an option of the run, got 0.1.",
        ),
    ],
)
def test_weight_decay_that_would_not_work_is_rejected(values, message):
    with pytest.raises(ValueError, match=r"weight_decay|row_lr") as raised:
        config(**values)
    assert message in str(raised.value)


def test_the_rest_of_a_model_may_decay_whatever_the_tables_are():
    config(sparse=True, optimizer="sparse_adam", network_weight_decay=0.1)
    config(codebook_dtype="bfloat16", network_weight_decay=0.1)
