"""Generalised matrix factorisation is a weighted dot product and a bias."""

import torch

from cce.collection import EmbeddingCollection
from cce.models import GMF
from cce.schema import Batch, Feature, Schema

SCHEMA = Schema((Feature("user", 9), Feature("item", 7)))


def model(dim=4):
    made = GMF(SCHEMA, EmbeddingCollection(SCHEMA.vocabulary_sizes, dim, method="full", seed=0)).double()
    with torch.no_grad():
        made.weight.copy_(torch.tensor([0.5, -1.0, 2.0, 0.0]))
        made.bias.fill_(0.25)
    return made


def batch(rows=5):
    g = torch.Generator().manual_seed(0)
    return Batch(torch.empty(rows, 0), torch.randint(7, (rows, 2), generator=g), torch.zeros(rows))


def vectors(made, some):
    return [table.to_dense(some.ids[:, index]) for index, table in enumerate(made.tables.tables.values())]


def test_starts_as_the_plain_dot_product():
    made = GMF(SCHEMA, EmbeddingCollection(SCHEMA.vocabulary_sizes, 4, method="full", seed=0))
    u, v = vectors(made, batch())
    torch.testing.assert_close(made(batch()), (u * v).sum(-1))


def test_is_the_weighted_dot_product_plus_a_bias():
    made, some = model(), batch()
    u, v = vectors(made, some)
    torch.testing.assert_close(made(some), (u * v * made.weight).sum(-1) + 0.25)


def test_bags_are_pooled():
    made = model()
    bags = Batch(torch.empty(1, 0), torch.tensor([1, 2, 5]), torch.zeros(1), offsets=torch.tensor([0, 2, 3]))
    users, items = made.tables.tables.values()
    u, v = users.to_dense(torch.tensor([1, 2])).sum(0), items.to_dense(torch.tensor([5]))[0]
    torch.testing.assert_close(made(bags)[0], (u * v * made.weight).sum() + 0.25)


def test_dropout_leaves_out_products_in_training_only():
    made = GMF(SCHEMA, EmbeddingCollection(SCHEMA.vocabulary_sizes, 64, method="full", seed=0), dropout=0.5)
    some, plain = batch(200), GMF(SCHEMA, made.tables)
    assert torch.equal(made.eval()(some), plain(some))
    made.train()
    torch.manual_seed(0)
    means = torch.stack([made(some) for _ in range(100)]).mean(0)
    assert not torch.equal(made(some), plain(some))
    products = made.tables(some.ids, some.offsets).prod(dim=1)
    spread = products.square().sum(1).sqrt() / 100**0.5  # of a mean of 100, as half of the products count twice
    assert ((means - plain(some)).abs() < 5 * spread).all()  # scaled, so that the mean stays
