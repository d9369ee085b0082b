"""Tables of float16: the rule lets through what trains, and nothing that blows up."""

import pytest

from cce.training import Trainer
from cce.training.half_precision import check_half
from helpers.runs import tiny_config


@pytest.mark.parametrize(
    ("optimizer", "options", "least"),
    [
        ("adam", {}, 0.005459),
        ("adamw", {"betas": (0.9, 0.99)}, 0.001726),
        ("nadam", {}, 0.005459),
        ("radam", {"betas": [0.9, 0.5]}, 0.0002441),
        ("sparse_adam", {}, 0.005459),
        ("rmsprop", {}, 0.001726),
        ("rmsprop", {"alpha": 0.9}, 0.0005459),
        ("adagrad", {}, 0.0001726),
    ],
)
def test_eps_must_cover_the_largest_gradient_whose_square_is_lost(optimizer, options, least):
    check_half(optimizer, options | {"eps": 1.001 * least})
    for eps in ({"eps": 0.999 * least}, {"eps": 1e-7}, {"eps": float("nan")}, {"eps": "1"}, {}):
        with pytest.raises(ValueError, match=f"needs optimizer_options eps of at least {least} with optimizer"):
            check_half(optimizer, options | eps)


def test_optimizers_without_squares_need_nothing_and_unknown_ones_are_rejected():
    for optimizer in ("sgd", "rowwise_adagrad", "asgd", "rprop"):
        check_half(optimizer, {})
    with pytest.raises(ValueError, match=r"'float16' must have an optimizer of sgd, rowwise_adagrad, .*; got 'adamax'"):
        check_half("adamax", {"eps": 1.0})


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
        check_half(optimizer, options)


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "eps", "lr"), [("adam", 0.00546, 0.01), ("adagrad", 0.000173, 0.05)])
def test_what_the_rule_lets_through_trains_as_float32_does(data, tmp_path, optimizer, eps, lr):
    options = {"optimizer": optimizer, "lr": lr, "optimizer_options": {"eps": eps}, "epochs": 1}
    half, single = (
        Trainer(tiny_config(data, codebook_dtype=kind, **options), tmp_path / kind).run().curve
        for kind in ("float16", "float32")
    )
    for one, two in zip(half, single, strict=True):
        assert one["bce"] == pytest.approx(two["bce"], abs=0.02)
