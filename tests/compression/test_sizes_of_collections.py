"""Sizes of the tables of a collection, which are looked up together: what is tried is what is scored."""

import torch

import cce

SIZES = {"user": 900, "item": 700}


def trained_collection():
    torch.manual_seed(0)
    tables = cce.EmbeddingCollection(
        SIZES, 8, method="cce", seed=0, counts={n: torch.full((s,), 5) for n, s in SIZES.items()}
    )
    optimizer = cce.optim.Adam(tables, lr=0.05)
    targets = {name: torch.randn(size, 8) for name, size in SIZES.items()}
    for _ in range(5):
        ids = torch.stack([torch.randint(size, (512,)) for size in SIZES.values()], 1)
        wanted = torch.stack([targets[name][ids[:, index]] for index, name in enumerate(SIZES)], 1)
        optimizer.zero_grad()
        (tables(ids) - wanted).square().mean().backward()
        optimizer.step()
    ids = torch.stack([torch.arange(700), torch.arange(700)], 1)
    rows = tables(ids).detach()
    return tables, lambda: float((tables(ids).detach() - rows).square().mean())


def test_every_size_is_scored_with_its_own_tables():
    tables, validate = trained_collection()
    state = {name: value.clone() for name, value in tables.state_dict().items()}
    found = cce.finalize(tables, validate=validate, tolerance=0.0, curve=True)
    losses = [size.loss for size in found.curve]
    assert found.loss_before == 0
    assert len(set(losses)) > 3
    assert losses[0] > 10 * losses[-1]
    for size in found.curve[:: len(found.curve) // 3]:
        again = cce.EmbeddingCollection(SIZES, 8, method="cce", seed=0)
        again.load_state_dict(state)
        ids = torch.stack([torch.arange(700), torch.arange(700)], 1)
        rows = again(ids).detach()
        cce.finalize(again, nbytes=size.nbytes)
        assert abs(float((again(ids).detach() - rows).square().mean()) - size.loss) < 1e-6
