"""Per-id estimates, against a solver that minimises the loss of each id by itself, and what one pass does for many."""

import numpy as np
import pytest
import torch

from cce.reclustering.refit import passes, sources
from cce.reclustering.refit.blocks import diagonal_blocks, unpack
from cce.reclustering.refit.estimates import Prior
from cce.reclustering.refit.hooks import LookupHooks, Target
from cce.reclustering.refit.passes import SharedPass
from cce.reclustering.refit.sources import ALL_ROWS, FetchedRows, Fold, Selection, cross_entropy, find_collection
from cce.schema import Batch
from helpers.ratings import DIM, SCHEMA, Ratings, make_model


def prior() -> Prior:
    mixing = torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(3))
    return Prior(torch.full((DIM,), 0.2), mixing @ mixing.T + torch.eye(DIM))


def make_pass(model, rows, *targets, fold=ALL_ROWS, block_dim=DIM):
    """The pass of some ids of some features, as (feature, ids)."""
    tables = find_collection(model)
    found = []
    for feature, ids in targets:
        name, size = SCHEMA.features[feature].name, SCHEMA.features[feature].num_embeddings
        found.append(Target(name, ids, tables.tables[name](ids).detach(), size, block_dim))
    return shared_pass_of(model, rows, found, fold)


def shared_pass_of(model, rows, targets, fold=ALL_ROWS):
    hooks = LookupHooks(model, dict(find_collection(model).tables.items()))
    return SharedPass(FetchedRows(model, rows, cross_entropy), hooks, targets, Selection(fold))


def fit(shared, given, num_steps):
    """Estimates after some Gauss-Newton steps."""
    vectors, priors = [target.present for target in shared.targets], [given] * len(shared.targets)
    for _ in range(num_steps):
        found = shared.quadratics(vectors)
        vectors = shared.shorten(found, priors, [each.step(given) for each in found])
    return [each.with_prior(given, own) for each, own in zip(found, vectors, strict=True)]


def answer(model, vectors):
    if not hasattr(model, "top"):
        return vectors.prod(1) @ model.weight + model.bias
    return model.top(model._interact(vectors)).squeeze(1)


def own_loss(model, rows, feature, name, vector, given):
    """The loss of one id's rows if its vector were this one, written out."""
    batch = rows.fetch(np.flatnonzero(rows.ids[:, feature].numpy() == name))
    vectors = model.tables(batch.ids).detach().clone()
    vectors[:, feature] = vector
    error = vector - given.mean
    return cross_entropy(answer(model, vectors), batch).sum() + error @ given.precision @ error / 2


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("feature", [0, 1])
def test_after_some_steps_it_is_the_minimum_of_each_id(weights, feature):
    model, rows, given = make_model(), Ratings(weights=weights), prior()
    ids = torch.tensor([3, 4, 11])
    (found,) = fit(make_pass(model, rows, (feature, ids)), given, 25)
    for name, vector, hessian in zip(ids.tolist(), found.vectors, unpack(found.packed, DIM), strict=True):
        vector = vector.clone().requires_grad_()
        (slope,) = torch.autograd.grad(own_loss(model, rows, feature, name, vector, given), vector)
        torch.testing.assert_close(slope, torch.zeros(DIM), rtol=0, atol=5e-3)
        hessian = torch.autograd.functional.hessian(
            lambda some, name=name: own_loss(model, rows, feature, name, some, given), vector.detach()
        )
        torch.testing.assert_close(hessian, hessian, rtol=1e-3, atol=1e-3)  # exact where logits are linear


@pytest.mark.parametrize("num_steps", [1, 2, 5])
def test_with_a_network_hardly_any_id_gets_worse(num_steps):
    model, rows, given = make_model("dlrm"), Ratings(), prior()
    shared = make_pass(model, rows, (0, torch.arange(30)))
    (found,) = fit(shared, given, num_steps)
    present = shared.targets[0].present
    before = torch.stack([own_loss(model, rows, 0, name, present[name], given) for name in range(30)])
    after = torch.stack([own_loss(model, rows, 0, name, found.vectors[name], given) for name in range(30)])
    assert int((after > before + 1e-5).sum()) <= 1
    assert after.sum() < before.sum()
    assert (found.vectors - present).norm(dim=1).gt(0).float().mean() > 0.9


class Curve(torch.nn.Module):
    """A model whose logit saturates in the vector of feature 0: a whole Gauss-Newton step may go too far."""

    def __init__(self):
        super().__init__()
        self.tables = make_model().tables

    def forward(self, batch):
        return 4 * torch.tanh(3 * self.tables(batch.ids, batch.offsets)[:, 0].sum(1))


def test_an_id_that_would_go_too_far_goes_to_the_minimum_between():
    """The share of the step is that of the quadratic through the loss here, its slope, and the loss at the end."""
    model, rows, given = Curve(), Ratings(), Prior(torch.zeros(DIM), 1e-3 * torch.eye(DIM))
    shared = make_pass(model, rows, (0, torch.arange(30)))
    (quadratics,) = shared.quadratics([shared.targets[0].present])
    points, goal = quadratics.points, quadratics.step(given)
    (at_goal,) = shared.losses([goal])
    (found,) = shared.shorten([quadratics], [given], [goal.clone()])
    rise = at_goal + given.cost(goal) - quadratics.losses - given.cost(points)
    assert 0 < int((rise > 0).sum()) < 30
    torch.testing.assert_close(found[rise <= 0], goal[rise <= 0])
    slope = ((quadratics.gradients + given.gradient(points)) * (goal - points)).sum(1)
    share = (slope / (2 * (slope - rise)))[rise > 0].unsqueeze(1)
    assert bool(((share > 0) & (share < 0.5)).all())
    torch.testing.assert_close(found[rise > 0], points[rise > 0] + share * (goal - points)[rise > 0])


def test_one_pass_of_two_features_has_the_quadratics_of_two_passes():
    model, rows = make_model("dlrm"), Ratings()
    users, items = (0, torch.arange(5, 25)), (1, torch.arange(20))
    both = make_pass(model, rows, users, items)
    together = both.quadratics([target.present for target in both.targets])
    for target, found in zip((users, items), together, strict=True):
        alone = make_pass(model, rows, target)
        (expected,) = alone.quadratics([alone.targets[0].present])
        for name in ("ids", "points", "losses", "gradients", "packed"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-4)
        assert bool((expected.num_moving == 1).all())
    assert bool((together[0].num_moving == 2).all())  # every row has an item that moves
    assert 1 < float(together[1].num_moving.mean()) < 2  # but not every row a user


@pytest.mark.parametrize("is_compiled", [True, False])
def test_blocks_are_those_of_whole_hessians(monkeypatch, is_compiled):
    monkeypatch.setattr(passes, "available", is_compiled and passes.available)
    model, rows, block_dim = make_model("dlrm"), Ratings(weights=True), DIM // 2
    targets = (0, torch.arange(5, 25)), (1, torch.arange(20))
    both = [make_pass(model, rows, *targets, block_dim=each) for each in (DIM, block_dim)]
    whole, blocks = (each.quadratics([target.present for target in each.targets]) for each in both)
    for one, other in zip(whole, blocks, strict=True):
        assert one.common is None
        hessians = unpack(one.packed, DIM)
        expected = torch.stack([diagonal_blocks(each, block_dim) for each in hessians])
        torch.testing.assert_close(unpack(other.packed, DIM), expected)
        torch.testing.assert_close(other.common, hessians.sum(0), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(other.gradients, one.gradients)


def test_if_all_move_at_once_the_loss_of_all_rows_falls():
    """Two features that say the same: each by itself would explain all of it, and both together twice as much."""
    model, rows, given = make_model(), Ratings(3_000), Prior(torch.zeros(DIM), 1e-3 * torch.eye(DIM))
    rows.ids[:, 1] = rows.ids[:, 0] % 20
    shared = make_pass(model, rows, (0, torch.arange(30)), (1, torch.arange(20)))
    found = shared.quadratics([target.present for target in shared.targets])
    goals = [each.minimum(given) for each in found], [each.step(given) for each in found]
    careless, shorter, tried = (
        float(shared.losses(vectors)[0].sum())
        for vectors in (*goals, shared.shorten(found, [given, given], [each.step(given) for each in found]))
    )
    assert careless > shorter > tried
    assert tried < float(found[0].losses.sum())


def test_only_the_rows_of_a_fold_count():
    model, rows = make_model(), Ratings()
    fold = Fold(1, 3)
    shared = make_pass(model, rows, (0, torch.arange(30)), fold=fold)
    (losses,) = shared.losses([shared.targets[0].present])
    batch = rows.fetch(fold.numbers(len(rows)))
    with torch.no_grad():
        expected = torch.zeros(30).index_add_(0, batch.ids[:, 0], cross_entropy(model(batch), batch))
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_losses_of_bags_are_those_of_other_vectors(pooling):
    """An id may be in a bag twice; a row counts once for each of its ids."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 4, 80)
    users, items = rng.integers(0, 30, lengths.sum()), rng.integers(0, 20, 80)
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([lengths, np.ones(80, np.int64)]))])
    labels = torch.from_numpy(rng.integers(0, 2, 80).astype(np.float32))
    batch = Batch(
        torch.zeros(80, 0), torch.from_numpy(np.concatenate([users, items])), labels, offsets=torch.from_numpy(offsets)
    )

    class OneBatch:
        def __len__(self):
            return 80

        def fetch(self, numbers):
            keep = [np.arange(offsets[f * 80 + n], offsets[f * 80 + n + 1]) for f in range(2) for n in numbers]
            bounds = torch.tensor(np.cumsum([0, *map(len, keep)]))
            return Batch(torch.zeros(len(numbers), 0), batch.ids[np.concatenate(keep)], labels[numbers], offsets=bounds)

    model, rows = make_model(), OneBatch()
    tables = find_collection(model)
    tables.pooling = pooling
    ids = torch.arange(7, 22)
    table = tables.tables["user"]
    shared = shared_pass_of(model, rows, [Target("user", ids, table(ids).detach(), 30, DIM)])
    new = torch.randn(15, DIM, generator=torch.Generator().manual_seed(0))
    (found,) = shared.losses([new])
    with torch.no_grad():
        next(iter(table.parameters()))[ids] = new
        every = cross_entropy(model(batch), batch)
    owners = np.repeat(np.arange(80), lengths)
    expected = [float(every[np.unique(owners[users == name])].sum()) for name in ids.tolist()]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_an_id_without_rows_goes_to_the_mean():
    rows = Ratings()
    rows.ids[rows.ids[:, 0] == 5, 0] = 6
    (found,) = fit(make_pass(make_model(), rows, (0, torch.tensor([5]))), prior(), 1)
    torch.testing.assert_close(found.vectors[0], prior().mean)
    torch.testing.assert_close(unpack(found.packed[0], DIM), prior().precision)


def test_plain_torch_gives_the_same(monkeypatch):
    targets = (0, torch.arange(30)), (1, torch.arange(4, 20))
    compiled = fit(make_pass(make_model(), Ratings(), *targets), prior(), 2)
    monkeypatch.setattr(passes, "available", False)
    monkeypatch.setattr(passes, "OUTER_ROWS", 7)
    monkeypatch.setattr(sources, "PASS_ROWS", 100)
    plain = fit(make_pass(make_model(), Ratings(), *targets), prior(), 2)
    for one, other in zip(plain, compiled, strict=True):
        torch.testing.assert_close(one.vectors, other.vectors, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(one.packed, other.packed, rtol=1e-4, atol=1e-4)
