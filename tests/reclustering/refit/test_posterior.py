"""What ids want, against a solver that minimises the loss of each id by itself."""

import numpy as np
import pytest
import torch

from cce.reclustering.refit import posterior
from cce.reclustering.refit.posterior import Block, Fit, Prior
from cce.reclustering.refit.rows import RowIndex
from cce.reclustering.refit.slopes import cross_entropy, find_collection
from helpers.ratings import DIM, SCHEMA, Ratings, make_model


def prior() -> Prior:
    mixing = torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(3))
    return Prior(torch.full((DIM,), 0.2), mixing @ mixing.T + torch.eye(DIM))


def make_block(model, rows, ids, *, feature=0):
    tables = find_collection(model)
    index = RowIndex.of(rows, feature, SCHEMA.features[feature].num_embeddings)
    return Block(model, tables, rows, index, ids, loss=cross_entropy)


def own_loss(model, rows, feature, name, vector, given):
    """The loss of one id's rows if its vector were this one, written out."""
    batch = rows.fetch(np.flatnonzero(rows.ids[:, feature].numpy() == name))
    vectors = model.tables(batch.ids).detach().clone()
    vectors[:, feature] = vector
    logits = (
        (vectors.prod(1) @ model.weight + model.bias)
        if not hasattr(model, "top")
        else model.top(model._interact(vectors)).squeeze(1)
    )
    error = vector - given.mean
    return cross_entropy(logits, batch).sum() + error @ given.precision @ error / 2


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("feature", [0, 1])
def test_after_some_steps_it_is_the_minimum_of_each_id(weights, feature):
    model, rows, given = make_model(), Ratings(weights=weights), prior()
    ids = torch.tensor([3, 4, 11])
    fit = make_block(model, rows, ids, feature=feature).fit(given, num_steps=25)
    for name, vector, curvature in zip(ids.tolist(), fit.vectors, fit.curvatures, strict=True):
        vector = vector.clone().requires_grad_()
        (slope,) = torch.autograd.grad(own_loss(model, rows, feature, name, vector, given), vector)
        torch.testing.assert_close(slope, torch.zeros(DIM), rtol=0, atol=5e-3)
        hessian = torch.autograd.functional.hessian(
            lambda some, name=name: own_loss(model, rows, feature, name, some, given), vector.detach()
        )
        torch.testing.assert_close(curvature, hessian, rtol=1e-3, atol=1e-3)  # exact where logits are linear


@pytest.mark.parametrize("num_steps", [1, 2, 5])
def test_with_a_network_no_id_gets_worse(num_steps):
    model, rows, given = make_model("dlrm"), Ratings(), prior()
    ids = torch.arange(30)
    block = make_block(model, rows, ids)
    fit = block.fit(given, num_steps=num_steps)
    for name in range(30):
        before = own_loss(model, rows, 0, name, block.present[name], given)
        after = own_loss(model, rows, 0, name, fit.vectors[name], given)
        assert after <= before + 1e-5
    assert (fit.vectors - block.present).norm(dim=1).min() > 0


def test_an_id_without_rows_goes_to_the_mean():
    rows = Ratings()
    rows.ids[rows.ids[:, 0] == 5, 0] = 6
    fit = make_block(make_model(), rows, torch.tensor([5])).fit(prior(), num_steps=1)
    torch.testing.assert_close(fit.vectors[0], prior().mean)
    torch.testing.assert_close(fit.curvatures[0], prior().precision)


def test_plain_torch_gives_the_same(monkeypatch):
    compiled = make_block(make_model(), Ratings(), torch.arange(30)).fit(prior(), num_steps=2)
    monkeypatch.setattr(posterior, "available", False)
    monkeypatch.setattr(posterior, "OUTER_ROWS", 7)
    plain = make_block(make_model(), Ratings(), torch.arange(30)).fit(prior(), num_steps=2)
    torch.testing.assert_close(plain.vectors, compiled.vectors, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(plain.curvatures, compiled.curvatures, rtol=1e-4, atol=1e-5)


def test_the_m_step_adds_what_is_not_known():
    vectors = torch.randn(5000, DIM, generator=torch.Generator().manual_seed(0))
    curvatures = torch.diag(torch.tensor([1.0, 2.0, 4.0, 8.0])).expand(5000, -1, -1)
    found = Prior.learned([Fit(torch.arange(5000), vectors, curvatures)])
    expected = np.cov(vectors.numpy().T, bias=True) + np.diag([1, 1 / 2, 1 / 4, 1 / 8])
    np.testing.assert_allclose(torch.linalg.inv(found.precision).numpy(), expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.mean, vectors.mean(0))


def test_the_prior_of_constant_vectors_is_finite():
    found = Prior.around(torch.ones(5, DIM))
    assert bool(found.precision.isfinite().all())
