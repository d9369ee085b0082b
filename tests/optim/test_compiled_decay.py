"""The loop of lazy decay gives what plain torch gives, row by row."""

import numpy as np
import pytest
import torch

from cce import compiled
from cce.optim import compiled_steps as loops
from cce.optim.compiled_decay import decay_rows
from cce.optim.fused import Fused

pytestmark = pytest.mark.skipif(not compiled.available, reason="numba is not installed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [[0, 3, 7], [7, 0, 3], [3, 0, 3, 3]])
def test_each_row_shrinks_by_what_it_lacks_once(dtype, rows):
    parameter = torch.nn.Parameter(torch.randn(8, 21, generator=torch.Generator().manual_seed(0)).to(dtype))
    clocks = torch.linspace(0, 0.4, 8, dtype=dtype)
    before, had = parameter.detach().clone(), clocks.clone()
    grad = torch.sparse_coo_tensor([rows], torch.zeros(len(rows), 21, dtype=dtype), (8, 21), check_invariants=True)
    parameter.grad = grad
    fused = Fused()
    assert fused.add(parameter, grad, clocks)
    (tables,) = fused.check()
    clock = float(np.float32(0.5))
    for cut in range(tables.num_entries):  # any cut into ranges gives the same
        decay_rows(tables.lines, clock, tables.number().itemsize, cut, cut + 1)
    expected, used = before.double(), sorted(set(rows))
    expected[used] *= torch.exp(had[used].double() - clock).unsqueeze(1)
    rtol = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(parameter.detach().double(), expected, rtol=rtol, atol=0)
    assert clocks[used].tolist() == [clock] * len(used)
    untouched = [row for row in range(8) if row not in rows]
    assert torch.equal(parameter[untouched], before[untouched])
    assert torch.equal(clocks[untouched], had[untouched])
    assert tables.lines.shape[1] == loops.NUM_COLUMNS
