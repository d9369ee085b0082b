"""Learning rates by step."""

import pytest
import torch

from cce.training.learning_rate import learning_rate_factor, set_learning_rate


def factors(schedule, warmup=0, total=10):
    return [learning_rate_factor(s, schedule=schedule, warmup_steps=warmup, total_steps=total) for s in range(total)]


def test_warm_up_rises_to_the_rate():
    assert factors("constant", warmup=4)[:5] == [0.25, 0.5, 0.75, 1, 1]


def test_a_line_and_a_cosine_fall_to_zero_after_the_warm_up():
    assert factors("linear", warmup=2, total=12)[2:] == pytest.approx([1 - k / 10 for k in range(10)])
    cosine = factors("cosine", total=10)
    assert cosine[0] == 1
    assert cosine[5] == pytest.approx(0.5)
    assert cosine == sorted(cosine, reverse=True)
    assert learning_rate_factor(99, schedule="cosine", warmup_steps=0, total_steps=10) == pytest.approx(0)


def test_a_wrong_name_is_refused():
    with pytest.raises(ValueError, match="schedule must be one of constant, linear, cosine; got 'step'"):
        factors("step")


def test_every_group_is_set():
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [parameters[0]], "lr": 1.0}, {"params": [parameters[1]]}], lr=2.0)
    set_learning_rate([optimizer], 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]
