"""What ids want, against a solver that minimises the loss of each id by itself."""

import numpy as np
import pytest
import torch
from torch import nn

from cce import EmbeddingCollection
from cce.models import create_model
from cce.reclustering.refit import posterior
from cce.reclustering.refit.posterior import Block, Fit, Prior
from cce.reclustering.refit.rows import RowIndex
from cce.reclustering.refit.slopes import Probe, cross_entropy, find_collection, in_evaluation
from cce.schema import Batch, Feature, Schema

DIM = 4
SCHEMA = Schema((Feature("user", 30), Feature("item", 20)))


class Ratings:
    """Random ratings, some of them with weights."""

    def __init__(self, num_rows: int = 600, *, weights: bool = False) -> None:
        rng = np.random.default_rng(0)
        self.ids = torch.from_numpy(np.stack([rng.integers(0, 30, num_rows), rng.integers(0, 20, num_rows)], 1))
        self.labels = torch.from_numpy(rng.integers(0, 2, num_rows).astype(np.float32))
        self.weights = torch.from_numpy(rng.random(num_rows).astype(np.float32)) if weights else None

    def __len__(self) -> int:
        return len(self.ids)

    def fetch(self, rows: np.ndarray) -> Batch:
        weights = None if self.weights is None else self.weights[rows]
        return Batch(torch.zeros(len(rows), 0), self.ids[rows], self.labels[rows], weights=weights)


def make_model(name: str = "gmf") -> nn.Module:
    tables = EmbeddingCollection(SCHEMA.vocabulary_sizes, DIM, method="full", seed=0)
    options = {} if name == "gmf" else {"top": [8], "generator": torch.Generator().manual_seed(1)}
    model = create_model(name, SCHEMA, tables, **options)
    with torch.no_grad():
        for parameter in tables.parameters():
            parameter.mul_(3)
    return model


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


def test_slopes_are_those_of_small_differences():
    model, rows = make_model("dlrm").double(), Ratings()
    batch = rows.fetch(np.arange(20))
    probe = Probe(model, find_collection(model), batch, 1)
    shift = torch.randn(20, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 10
    probe._run = lambda some, run=probe._run: run(some).double()
    _, slopes = probe.slopes(shift)
    for column in range(DIM):
        step = torch.zeros_like(shift)
        step[:, column] = 1e-3
        numeric = (probe.logits(shift + step) - probe.logits(shift - step)) / 2e-3
        torch.testing.assert_close(slopes[:, column], numeric, rtol=2e-2, atol=2e-3)


def test_the_model_is_itself_again_after_an_error():
    model = make_model()
    tables = find_collection(model)
    batch = Ratings().fetch(np.arange(4))
    before = tables(batch.ids)
    probe = Probe(model, tables, batch, 0)
    with pytest.raises(RuntimeError):
        probe.logits(torch.zeros(3, DIM))
    model.bias.requires_grad_(False)
    model.bias.data = torch.zeros(7)
    with pytest.raises(RuntimeError):
        probe.logits(torch.zeros(4, DIM))
    torch.testing.assert_close(tables(batch.ids), before)


def test_every_part_goes_back_to_its_mode():
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    model[1].eval()
    modes = [module.training for module in model.modules()]
    with in_evaluation(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == modes


def test_a_model_has_one_collection():
    with pytest.raises(ValueError, match=r"must have one EmbeddingCollection .* got 0"):
        find_collection(nn.Linear(2, 2))
    unified = EmbeddingCollection({"a": 5, "b": 6}, 4, method="hash", cap=8, unified=True)
    with pytest.raises(ValueError, match="got a unified one"):
        find_collection(nn.Sequential(unified))
