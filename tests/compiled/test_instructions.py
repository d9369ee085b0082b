"""Runs of floats at addresses are read, added and written as numpy would."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from cce import compiled
from cce.compiled import compile_loops, memory

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")

put_sum, add, add_scaled, clear, put = memory.put_sum, memory.add, memory.add_scaled, memory.clear, memory.put
count_bits, read_int32 = memory.count_bits, memory.read_int32


@compile_loops
def all_of_them(out, first, second, step, scale, kind, sum_kind, run):
    put_sum(out, first, second, kind, run)
    add(out, first, kind, run)
    put(out + step, second, kind, run)
    add_scaled(out + step, out, scale, sum_kind, run)
    clear(out + 2 * step, kind, run)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [1, 4])
def test_sums_of_runs(dtype, length):
    first, second = (torch.randn(length, generator=torch.Generator().manual_seed(s)).to(dtype) for s in range(2))
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    out = torch.full((4, length), 9.0, dtype=wide)
    kinds = memory.KINDS[dtype], memory.KINDS[wide], memory.RUNS[length]
    all_of_them(out.data_ptr(), first.data_ptr(), second.data_ptr(), length * wide.itemsize, 0.3, *kinds)
    a, b = first.to(wide), second.to(wide)
    assert torch.equal(out[0], a + b + a)
    assert torch.equal(out[1], b + torch.tensor(0.3, dtype=wide) * out[0])
    assert not out[2].any()
    assert (out[3] == 9).all()  # nothing is written beyond


@compile_loops
def bits_of(words):
    total = 0
    for word in words:
        total += count_bits(word)
    return total


def test_bits_are_counted():
    words = np.array([0, 1, 2**63, 2**64 - 1, 0b1011], dtype=np.uint64)
    assert bits_of(words) == sum(bin(int(word)).count("1") for word in words) == 69


@compile_loops
def sum_numbers(source, count):
    total = 0
    for i in range(count):
        total += np.int64(read_int32(source + 4 * i))
    return total


def test_numbers_at_addresses():
    source = np.array([0, -1, 2**31 - 1], dtype=np.int32)
    assert sum_numbers(source.ctypes.data, 3) == 2**31 - 2


EVERY_HALF = """
import numpy as np, torch, cce
halves = np.arange(65536, dtype=np.uint16).view(np.float16)
values = torch.from_numpy(halves[~np.isnan(halves)].copy()).unsqueeze(1).expand(-1, 8)
table = cce.embeddings.FullEmbedding(len(values), 8).half()
with torch.no_grad():
    table.codebook.copy_(values)
found = table(torch.arange(len(values)))
assert torch.equal(found, values)
print(len(values))
"""


@pytest.mark.slow
def test_float16_is_read_on_processors_without_an_instruction_for_it():
    environment = os.environ | {"NUMBA_CPU_NAME": "generic"}
    command = [sys.executable, "-c", EVERY_HALF]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert (result.returncode, result.stdout) == (0, "63490\n"), result.stderr[-2000:]
