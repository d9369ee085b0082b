"""Loops are compiled where they can be, and are what they were where they cannot."""

import subprocess
import sys

import numpy as np
import pytest

from cce import compiled
from cce.compiled import compile_loops, loops


def sum_of_squares(values: np.ndarray) -> float:
    total = 0.0
    for value in values:
        total += value * value
    return total


def test_available_says_whether_numba_is_installed():
    try:
        import numba  # noqa: F401
    except ImportError:
        assert compiled.available is False
    else:
        assert compiled.available is True


def test_a_compiled_loop_gives_what_the_loop_gives():
    values = np.arange(100, dtype=np.float64)
    assert compile_loops(sum_of_squares)(values) == sum_of_squares(values) == 328_350


def test_a_loop_keeps_its_name():
    assert compile_loops(sum_of_squares).__name__ == "sum_of_squares"


@pytest.mark.slow
def test_without_numba_a_loop_is_returned_as_it_is():
    """An import that fails stands for a package that is not there."""
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "import importlib.machinery\n"
            "class Finder(importlib.machinery.PathFinder):\n"
            "    @classmethod\n"
            "    def find_spec(cls, name, path=None, target=None):\n"
            "        return None if name.split('.')[0] == 'numba' else super().find_spec(name, path, target)\n"
            "at = sys.meta_path.index(importlib.machinery.PathFinder)\n"
            "sys.meta_path[at] = Finder\n"
            "from cce import compiled\n"
            "def loop(x):\n"
            "    return x\n"
            "assert compiled.available is False\n"
            "assert compiled.compile_loops(loop) is loop\n"
            "import torch, cce\n"
            "table = cce.ClusteredEmbedding(200, 8, num_rows=5, generator=torch.Generator().manual_seed(0))\n"
            "table.cluster(generator=torch.Generator().manual_seed(0))\n"
            "assert 'numba' not in sys.modules",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")
def test_what_is_kept_on_disk_is_bound_to_the_text_of_all_loops(tmp_path):
    kept = compile_loops(sum_of_squares)._cache._cache_file
    assert kept._source_stamp[1] == loops.digest(loops.PACKAGE)
    room = tmp_path / "kernels"
    room.mkdir()
    (room / "one.py").write_text("BLOCK = 256")
    before = loops.digest(tmp_path)
    loops.digest.cache_clear()
    (room / "one.py").write_text("BLOCK = 512")
    assert loops.digest(tmp_path) != before


@pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")
def test_no_two_pieces_of_code_are_kept_in_one_file():
    """Two processes that compile at once would otherwise overwrite each other's code, and run it."""
    kept = compile_loops(sum_of_squares)._cache._cache_file
    names = {kept._data_name(number) for number in (1, 1, 1, 2)}
    assert len(names) == 4
    assert all(name.startswith("test_loops.sum_of_squares") and name.endswith(".nbc") for name in names)
