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
table = cce.ClusteredEmbedding(1_000, 8, num_rows=50, generator=torch.Generator().manual_seed(0))
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
LEAVE = """
import torch, cce
print(cce.ClusteredEmbedding(1_000, 8, num_rows=50)(torch.arange(5)).shape[1])
"""


def run(program, folder):
    """What a program prints that finds nothing compiled; a warning would be an error."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache"), "CCE_COMPILED": ""}
    (folder / "program.py").write_text(program)
    words = [sys.executable, "-W", "error::ResourceWarning", "program.py"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout.strip()


def test_a_child_compiles_and_its_parent_loads(tmp_path):
    (tmp_path / "made.py").write_text(MADE)
    assert run(ASK, tmp_path) == "6 5.0 2"


def test_what_a_child_cannot_compile_is_compiled_here(tmp_path):
    assert run(FAIL, tmp_path) == "6"


def test_vectors_and_gradients_are_the_same_before_and_after(tmp_path):
    assert run(LOOK_UP, tmp_path) == "equal"


def test_a_process_ends_while_its_child_compiles(tmp_path):
    assert run(LEAVE, tmp_path) == "8"
