"""Until loops are compiled, by another process, plain torch gives the same vectors, and nobody waits."""

import os
import subprocess
import sys

import pytest

from cce import compiled

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not compiled.available, reason="compilation is off")]

MADE = """
from cce.compiled import compile_loops


@compile_loops
def doubled(x):
    return x + x
"""
ASK = """
import time
from cce.compiled import background, is_compiled
import made
assert not is_compiled(made.doubled, (3,))  # a child begins
assert not is_compiled(made.doubled, (2.5,))
assert len(background._children) == 2
for number in (3, 2.5):
    while not is_compiled(made.doubled, (number,)):
        time.sleep(0.05)
assert made.doubled.signatures == []  # nothing was compiled here
print(made.doubled(3), made.doubled(2.5), sum(made.doubled.stats.cache_hits.values()))
"""
FAIL = """
import time
from cce.compiled import compile_loops, is_compiled

@compile_loops
def doubled(x):  # not to be found in any module that a child could import
    return x + x

while not is_compiled(doubled, (3,)):
    time.sleep(0.05)
print(doubled(3))
"""
LOOK_UP = """
import torch, cce
from cce.kernels.cpu import loops
table = cce.embeddings.ClusteredEmbedding(1_000, 8, num_rows=50, generator=torch.Generator().manual_seed(0))
ids = torch.arange(0, 1_000, 7)
plain = table(ids)
assert loops.look_up.signatures == []
plain.sum().backward()  # waits
assert loops.look_up.signatures != []
gradients = [parameter.grad.clone() for parameter in table.parameters()]
table.zero_grad()
vectors = table(ids)
vectors.sum().backward()
assert torch.equal(plain, vectors)
assert all(torch.equal(a, b.grad) for a, b in zip(gradients, table.parameters(), strict=True))
print("equal")
"""
BAGS = """
import torch, cce
from cce.kernels.cpu import loops
sizes = {"a": 1_000, "b": 300}
ids, offsets = torch.arange(0, 300, 3), torch.tensor([0, 3, 3, 50, 51, 60, 100])
cases, plain = (("sum", None), ("mean", None), ("sum", torch.rand(100))), []
def look_up(pooling, weights):
    tables = cce.EmbeddingCollection(sizes, 8, method="ce-concat", cap=400, pooling=pooling, seed=0)
    return tables, tables(ids, offsets, weights)
def gradients(tables, vectors):
    vectors.square().sum().backward()
    return [parameter.grad for parameter in tables.parameters()]
plain = [look_up(*case) for case in cases]
assert loops.look_up.signatures == []
before = [gradients(*each) for each in plain]  # waits
assert loops.look_up.signatures != []
for case, (_, vectors), expected in zip(cases, plain, before):
    tables, found = look_up(*case)
    assert torch.equal(vectors, found)
    assert all(map(torch.equal, gradients(tables, found), expected))
print("equal")
"""
ROWS = """
import torch, cce
from cce.kernels.cpu.int8.lookup import look_up
from cce.kernels.cpu.int8.step import step
counts, ids = torch.arange(1_000) % 4, torch.arange(0, 1_000, 7)
def make():
    generator = torch.Generator().manual_seed(0)
    table = cce.embeddings.CCEEmbedding(1_000, 8, counts=counts, padding_idx=7, generator=generator)
    return table, cce.optim.Adam(table, lr=0.1)
def train(table, optimizer):
    vectors = table(ids)
    yield vectors.detach()
    vectors.square().sum().backward()
    optimizer.step()
    yield table(ids).detach()
first, second = (train(*make()) for _ in range(2))
plain = next(first)
assert plain.any() and look_up.signatures == [] and step.signatures == []
trained = next(first)  # waits
assert look_up.signatures != [] and step.signatures != []
assert torch.equal(plain, next(second))
assert torch.equal(trained, next(second))
assert not torch.equal(plain, trained)
print("equal")
"""
LEAVE = """
import torch, cce
print(cce.embeddings.ClusteredEmbedding(1_000, 16, num_rows=50)(torch.arange(5)).shape[1])
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of all programs here: each asks for loops of its own, and all share the functions that these call."""
    return tmp_path_factory.mktemp("cache")


def run(program, folder, cache):
    """What a program prints that finds none of its loops compiled; a warning would be an error."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "CCE_COMPILED": ""}
    (folder / "program.py").write_text(program)
    words = [sys.executable, "-W", "error::ResourceWarning", "program.py"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout.strip()


def test_a_child_compiles_and_its_parent_loads(tmp_path, cache):
    (tmp_path / "made.py").write_text(MADE)
    assert run(ASK, tmp_path, cache) == "6 5.0 2"


def test_what_a_child_cannot_compile_is_compiled_here(tmp_path, cache):
    assert run(FAIL, tmp_path, cache) == "6"


@pytest.mark.parametrize("program", [LOOK_UP, BAGS, ROWS], ids=["ids", "bags", "int8 rows"])
def test_vectors_and_gradients_are_the_same_before_and_after(program, tmp_path, cache):
    assert run(program, tmp_path, cache) == "equal"


def test_a_process_ends_while_its_child_compiles(tmp_path, cache):
    assert run(LEAVE, tmp_path, cache) == "16"
