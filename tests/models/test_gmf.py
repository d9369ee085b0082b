"""Generalised matrix factorisation is a weighted dot product and a bias."""

import torch

from cce.models import GMF


def vectors(batch=5, dim=4, dtype=torch.float64):
    return torch.randn(batch, 2, dim, dtype=dtype, generator=torch.Generator().manual_seed(0))


def trained(dim=4):
    model = GMF(dim).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([0.5, -1.0, 2.0, 0.0]))
        model.bias.fill_(0.25)
    return model


def test_starts_as_the_plain_dot_product():
    u, v = vectors().unbind(1)
    torch.testing.assert_close(GMF(4).double()(vectors()), (u * v).sum(-1))


def test_is_the_weighted_dot_product_plus_a_bias():
    model, batch = trained(), vectors()
    logits = model(batch)
    for (u, v), logit in zip(batch.tolist(), logits.tolist(), strict=True):
        expected = sum(w * a * b for w, a, b in zip(model.weight.tolist(), u, v, strict=True)) + 0.25
        assert abs(logit - expected) < 1e-12


def test_gives_one_logit_a_row_and_none_for_no_rows():
    assert GMF(4).double()(vectors()).shape == (5,)
    assert GMF(4).double()(vectors(batch=0)).shape == (0,)


def test_has_a_weight_for_each_dimension_and_one_bias():
    assert {name: tuple(p.shape) for name, p in GMF(7).named_parameters()} == {"weight": (7,), "bias": ()}


def test_gradients_are_right():
    model, batch = trained(), vectors().requires_grad_()

    def logits(batch, weight, bias):
        return torch.func.functional_call(model, {"weight": weight, "bias": bias}, (batch,))

    assert torch.autograd.gradcheck(logits, (batch, model.weight, model.bias))


def test_gradients_are_right_where_vectors_are_zero():
    """A product's gradient must not divide by what is multiplied."""
    batch = vectors(batch=3)
    batch[0] = 0
    batch[1, 0] = 0
    batch.requires_grad_()
    trained()(batch).sum().backward()
    u, v = batch.detach().unbind(1)
    weight = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(batch.grad, torch.stack([weight * v, weight * u], dim=1))


def test_swapping_the_two_vectors_changes_nothing():
    torch.testing.assert_close(trained()(vectors()), trained()(vectors().flip(1)))
