"""The one way into lookups: the same answer by whichever backend."""

import copy
import itertools
import os
import pickle
import sys

import pytest
import torch

import cce
from cce import compiled
from cce.kernels import Bags, Lookup
from helpers.linear_tables import TABLES, plain, seeded, some_ids

needs_numba = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")


@pytest.fixture
def uncompiled(monkeypatch):
    """As where numba cannot be imported, after that was said."""
    monkeypatch.setattr(compiled, "available", False)
    monkeypatch.setattr(compiled, "warn_plain", lambda: None)


def results_of(table, ids):
    vectors = table(ids)
    upstream = torch.randn(vectors.shape, generator=seeded(1))
    return vectors, torch.autograd.grad(vectors, table.codebook, upstream)[0]


@needs_numba
@pytest.mark.parametrize("name", ["cce", "robe of odd blocks", "cce of int8 rows, final"])
@pytest.mark.parametrize("sparse", [False, True])
def test_compiled_loops_and_plain_torch_give_the_same(request, name, sparse):
    table, ids = TABLES[name](sparse=sparse, padding_idx=5), some_ids(300)
    ids[::7] = 5
    compiled_vectors, compiled_gradient = results_of(table, ids)
    request.getfixturevalue("uncompiled")
    vectors, gradient = results_of(table, ids)
    assert gradient.is_sparse is compiled_gradient.is_sparse is sparse
    torch.testing.assert_close(compiled_vectors, vectors)
    torch.testing.assert_close(compiled_gradient.to_dense(), gradient.to_dense())


@needs_numba
@pytest.mark.parametrize("weighted", [False, True])
def test_bags_are_the_same_by_either_backend(request, weighted):
    tables = [TABLES["cce"](padding_idx=3), TABLES["full"]()]
    ids, offsets = some_ids(60), torch.tensor([0, 10, 10, 30, 45, 45, 60])
    bags = Bags(offsets, 3, torch.rand(60, generator=seeded(2)) if weighted else None)
    found = Lookup(tables)(ids, bags=bags)
    request.getfixturevalue("uncompiled")
    torch.testing.assert_close(found, Lookup(tables)(ids, bags=bags))


def test_weights_of_a_bag_that_are_trained_get_their_gradient():
    table, ids = TABLES["full"](), some_ids(4)
    weights = torch.ones(4, requires_grad=True)
    Lookup([table])(ids, bags=Bags(torch.tensor([0, 1, 4]), 2, weights)).sum().backward()
    torch.testing.assert_close(weights.grad, plain(table, ids).sum(1))


def test_other_float_types_go_to_plain_torch():
    table, ids = TABLES["cce"](), some_ids(30)
    expected = plain(table, ids)
    table.codebook = torch.nn.Parameter(table.codebook.detach().to(torch.complex64))
    assert torch.equal(table(ids).real, expected)
    assert table.look_up.plan is None


@needs_numba
def test_tables_of_two_float_types_are_looked_up_one_by_one():
    tables = [TABLES["full"](), TABLES["full"]().double()]
    vectors = Lookup(tables)(some_ids(30, 2))
    assert vectors.dtype is torch.float64


@needs_numba
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_a_copy_makes_a_plan_of_its_own(duplicate):
    table = TABLES["cce"]()
    collection = cce.EmbeddingCollection({"a": 700}, 16, cap=1600, seed=0)
    table(some_ids(30))
    collection(some_ids(30, 1))
    assert duplicate(table).look_up.plan is None
    assert duplicate(collection)._fused is None
    assert table.look_up.plan is not None


@pytest.mark.parametrize("name", ["cce", "full", "hash-embedding with weights"])
def test_ids_of_32_bits(name):
    table, ids = TABLES[name](), some_ids(600)
    assert torch.equal(table(ids.int()), table(ids))
    with pytest.raises(IndexError, match="got -2147483648"):
        table(torch.tensor([3, -(2**31)], dtype=torch.int32))


def test_that_numba_is_missing_is_said_once(monkeypatch):
    table, ids = TABLES["cce"](), some_ids(30)
    monkeypatch.setattr(compiled, "available", False)
    compiled.warn_plain.cache_clear()
    with pytest.warns(UserWarning, match="cce runs in plain torch, many times slower than compiled loops"):
        table(ids)
    table(ids)  # warnings are errors


# -- the journey -------------------------------------------------------------------------------------------------------


def visited(run):
    """Functions of the package, without comprehensions, that a call runs, in order: their files and names."""
    root, calls = os.path.dirname(cce.__file__), []

    def note(frame, event, _):
        name = frame.f_code.co_name
        if event == "call" and frame.f_code.co_filename.startswith(root) and not name.startswith("<"):
            calls.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


@needs_numba
@pytest.mark.parametrize(
    ("method", "sparse", "most"),
    [("cce-paper", False, (45, 15, 29)), ("cce-paper", True, (54, 16, 34)), ("cce", False, (64, 17, 72))],
)
def test_the_journey_of_a_batch_is_short(method, sparse, most):
    """A step of training with two features, however fast, must also be easy to follow."""
    tables = cce.EmbeddingCollection({"a": 700, "b": 300}, 16, method=method, cap=1600, seed=0, sparse=sparse)
    optimizer, ids = cce.optim.SGD(tables.parameters(), lr=0.1), some_ids(30, 2, high=300)

    def step():
        optimizer.zero_grad()
        tables(ids).sum().backward()
        optimizer.step()

    step()
    calls = visited(step)
    files = [file for file, _ in calls]
    jumps = sum(before != after for before, after in itertools.pairwise(files))
    found = len(set(calls)), len(set(files)), jumps
    assert all(number <= limit for number, limit in zip(found, most, strict=True)), found
