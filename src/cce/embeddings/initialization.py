"""The start of every table: values of mean 0, and of a variance that `start_scale` names, the same for every method.

- `"uniform"`: variance `1 / (3 · embedding_dim)` for every id, that of U(±1/√dim). The CCE paper's start is another:
  its code draws both of the tables that add up from U(±1/√dim), so that vectors have twice that variance, and its
  pseudo-code draws both from N(0, 1). The method `cce-paper` offers these two (`init`), and this one if it is told.
- `"dlrm"`: variance `1 / (3 · num_embeddings)`, that of U(±1/√n), as DLRM starts the table of a feature with `n` ids.
  Ids that are seen once or never keep their start, and in a large table such ids are many: a small start is less noise.
  It is the default of `full` and `cce`, chosen on validation rows; the others start as "uniform".
- `"zero"`: every vector is exactly zero.
- a number above 0: the standard deviation of every value.

What a method multiplies or adds to make an output is scaled so that the output has the variance: methods then differ in
what they share, not in where they begin. Where vectors are products (ce-mult, tt, dhe, low-rank, mixed-dim, collide),
one factor alone carries the scale, and the others start as with "uniform". If all shrank, each would shrink the
gradients of the others, and zero would be a saddle that no gradient leaves. The random numbers that are drawn do not
depend on the scale, so tables of one seed have the same hash functions and pointers at any start.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from cce.indexing import check_generator

USUAL_IDS = 1_000_000  # that "dlrm" takes an open table to have
LEAST_ITEMSIZE = 2  # of a trainable type: torch stores float8, and can neither add it up nor step on it

StartScale = Literal["uniform", "dlrm", "zero"] | float


def output_variance(embedding_dim: int) -> float:
    """The variance of every value of a table that starts as "uniform"."""
    return 1 / (3 * embedding_dim)


def start_variance(num_embeddings: int | None, embedding_dim: int, start_scale: StartScale) -> float:
    """The variance of every value of a table at the start."""
    if not isinstance(start_scale, str):
        return float(start_scale) ** 2
    named = {"uniform": output_variance(embedding_dim), "dlrm": 1 / (3 * (num_embeddings or USUAL_IDS)), "zero": 0.0}
    return named[start_scale]


@torch.no_grad()
def scale_factor(factor: Tensor, variance: float, embedding_dim: int) -> None:
    """Scale one factor of a product, of which all were drawn for "uniform", so that the product has `variance`."""
    factor.mul_(math.sqrt(variance / output_variance(embedding_dim)))


def new_parameter(
    shape: Sequence[int], *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> nn.Parameter:
    """A parameter without values, which `init_parameters` of its table draws; device and dtype as torch has them."""
    check_placement(device, dtype)
    return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))


@torch.no_grad()
def normal_(table: Tensor, *, variance: float, generator: torch.Generator | None = None) -> None:
    """Fill a table with independent normal values: drawn on the CPU in float32, so equal for all devices and types."""
    check_generator(generator)
    is_plain = table.is_cpu and table.dtype is torch.float32 and table.is_contiguous()
    drawn = table if is_plain else torch.empty(table.shape, dtype=torch.float32, device="cpu")
    drawn.normal_(generator=generator)
    table.copy_(drawn.mul_(math.sqrt(variance)) if variance > 0 else drawn.zero_())


@torch.no_grad()
def projection_(table: Tensor, *, generator: torch.Generator | None = None) -> None:
    """Fill a `(narrow_dim, wide_dim)` projection so that it keeps the variance: rows of squared norm wide/narrow.

    The random rows are normalised, as there are too few of them for a random norm to average out.
    """
    check_generator(generator)
    narrow_dim, wide_dim = table.shape
    rows = torch.randn(narrow_dim, wide_dim, generator=generator, dtype=torch.float32, device="cpu")
    table.copy_(nn.functional.normalize(rows).mul_(math.sqrt(wide_dim / narrow_dim)))


def check_placement(device: torch.device | str | None, dtype: torch.dtype | None) -> None:
    """Reject a device that is not there, and a dtype that cannot be trained."""
    if device is not None:
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, TypeError):
            raise ValueError(f"device must be one that torch finds here, such as 'cpu', got {device!r}.") from None
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype must be a floating-point torch.dtype such as torch.float32, got {dtype!r}.")
    if dtype is not None and dtype.itemsize < LEAST_ITEMSIZE:
        raise ValueError(f"dtype must have sums in torch: for rows of 8 bits take method 'quantized', got {dtype}.")
