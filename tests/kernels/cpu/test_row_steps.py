"""Steps inside of backward are the ordinary ones, to the bit, and no gradient is made."""

import gc

import pytest
import torch

import cce
from cce import compiled
from cce.kernels.cpu.row_steps import AttachedStep, find_step
from helpers.linear_tables import TABLES, seeded, some_ids

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")

SIZES = {"many": 700, "few": 9, "some": 300}


def collection(**options):
    return cce.EmbeddingCollection(SIZES, 16, cap=1600, seed=0, **options)


def train(tables, optimizer, batch, *, bags=False):
    for step in range(3):
        ids = some_ids(batch, 3, seed=step) % torch.tensor(list(SIZES.values()))
        inputs = (ids.t().flatten(), torch.arange(0, 3 * batch + 1)) if bags else (ids,)
        optimizer.zero_grad()
        (tables(*inputs) * torch.randn(batch, 3, 16, generator=seeded(step))).sum().backward()
        optimizer.step()


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 20, 300, 3000])  # used rows alone, or all rows
@pytest.mark.parametrize("options", [{}, {"sparse": True}, {"dtype": torch.float64}, {"padding_idx": 3}])
@pytest.mark.parametrize("maximize", [False, True])
def test_the_same_bits_as_an_ordinary_step(batch, options, maximize):
    ordinary, fused = collection(**options), collection(**options)
    ordinary.tables["some"].requires_grad_(False)
    fused.tables["some"].requires_grad_(False)
    train(ordinary, cce.optim.SGD(ordinary.parameters(), lr=0.1, maximize=maximize), batch)
    optimizer = cce.optim.SGD(fused.parameters(), lr=0.1, maximize=maximize)
    cce.optim.apply_in_backward(optimizer)
    assert find_step([table.codebook for table in fused.tables.values()]) is not None
    train(fused, optimizer, batch)
    assert all(map(torch.equal, ordinary.parameters(), fused.parameters()))
    assert not torch.equal(fused.tables["many"].codebook, collection(**options).tables["many"].codebook)


def test_bags_step_too():
    ordinary, fused = collection(), collection()
    train(ordinary, cce.optim.SGD(ordinary.parameters(), lr=0.1), 30, bags=True)
    optimizer = cce.optim.SGD(fused.parameters(), lr=0.1)
    cce.optim.apply_in_backward(optimizer)
    train(fused, optimizer, 30, bags=True)
    assert all(map(torch.equal, ordinary.parameters(), fused.parameters()))


def test_no_gradient_is_made_and_autograd_knows_of_the_write():
    table, ids = TABLES["cce"](), some_ids(30)
    cce.optim.apply_in_backward(cce.optim.SGD(table.parameters(), lr=0.1))
    seen, version = [], table.codebook._version
    table.codebook.register_post_accumulate_grad_hook(seen.append)
    table(ids).sum().backward()
    assert seen == []
    assert table.codebook.grad is None
    assert table.codebook._version == version + 1


def test_a_table_that_is_looked_up_twice_is_stepped_by_the_sum():
    ordinary, fused = TABLES["cce"](), TABLES["cce"]()
    cce.optim.apply_in_backward(cce.optim.SGD(fused.parameters(), lr=0.1))
    (fused(some_ids(30)).sum() + fused(some_ids(40, seed=1)).sum()).backward()
    (ordinary(some_ids(30)).sum() + ordinary(some_ids(40, seed=1)).sum()).backward()
    expected = ordinary.codebook.detach() - 0.1 * ordinary.codebook.grad
    torch.testing.assert_close(fused.codebook.detach(), expected)


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"weight_decay": 0.1}])
def test_steps_that_do_not_add_up_are_left_to_hooks(options):
    table = TABLES["cce"]()
    cce.optim.apply_in_backward(cce.optim.SGD(table.parameters(), lr=0.1, **options))
    assert find_step([table.codebook]) is None


def test_rows_that_still_lack_decay_are_left_to_hooks():
    table = cce.create_embedding("cce", 200, 8, num_params=400, sparse=True, seed=0)
    optimizer = cce.optim.SGD(table.parameters(), lr=0.1, weight_decay=0.01)
    cce.optim.apply_in_backward(optimizer)
    table(torch.arange(5)).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["weight_decay"] = 0.0
    assert find_step([table.codebook]) is None
    optimizer.catch_up()
    assert find_step([table.codebook]) is not None


def test_other_optimizers_hooks_and_types_are_left_to_hooks():
    adagrad, hooked, half = TABLES["cce"](), TABLES["cce"](), TABLES["cce"]().bfloat16()
    cce.optim.apply_in_backward(cce.optim.RowwiseAdagrad(adagrad.parameters(), lr=0.1))
    for table in (hooked, half):
        cce.optim.apply_in_backward(cce.optim.SGD(table.parameters(), lr=0.1))
    hooked.codebook.register_hook(lambda grad: 2 * grad)
    assert [find_step([table.codebook]) for table in (adagrad, hooked, half)] == [None] * 3


def test_tables_of_two_groups_or_without_a_step_are_left_to_hooks():
    first, second, third = TABLES["cce"](), TABLES["cce"](), TABLES["cce"]()
    groups = [{"params": [first.codebook]}, {"params": [second.codebook], "lr": 0.2}]
    cce.optim.apply_in_backward(cce.optim.SGD(groups, lr=0.1))
    assert find_step([first.codebook]) is not None
    assert find_step([first.codebook, second.codebook]) is None
    assert find_step([first.codebook, third.codebook]) is None
    third.requires_grad_(False)
    assert find_step([first.codebook, third.codebook]) is not None


def test_a_removed_step_is_gone():
    table = TABLES["cce"]()
    handle = cce.optim.apply_in_backward(cce.optim.SGD(table.parameters(), lr=0.1))
    handle.remove()
    assert find_step([table.codebook]) is None
    table(some_ids(30)).sum().backward()
    assert table.codebook.grad is not None


@pytest.mark.slow
def test_a_step_lives_as_long_as_its_holder():
    class Step:
        def is_ready(self, codebooks):
            return True

    codebook = torch.zeros(2, 2, requires_grad=True)
    attached = AttachedStep(codebook, Step())
    assert find_step([codebook]) is attached.step
    del attached
    gc.collect()
    assert find_step([codebook]) is None


def test_gradients_of_gradients_are_refused():
    table, scale = TABLES["cce"](), torch.ones((), requires_grad=True)
    cce.optim.apply_in_backward(cce.optim.SGD(table.parameters(), lr=0.1))
    loss = (table(some_ids(30)) * scale).square().sum()
    with pytest.raises(RuntimeError, match="gradients of gradients need ordinary steps"):
        loss.backward(create_graph=True)


@pytest.mark.slow
def test_tables_that_changed_their_shape_before_backward_are_not_written_to():
    table = cce.ClusteredEmbedding(700, 16, num_rows=20, first_rows=300, generator=seeded())
    cce.optim.apply_in_backward(cce.optim.SGD(table.parameters(), lr=0.1))
    vectors = table(some_ids(300))
    table.cluster(generator=seeded())
    with pytest.raises(RuntimeError, match="the tables changed their shapes between forward and backward"):
        vectors.sum().backward()
