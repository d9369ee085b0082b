"""Ids as benchmarks draw them: uniform, or by Zipf's law, the frequent ids being the small ones."""

import torch
from torch import Tensor

# Criteo Kaggle's 26 vocabularies over all seven days: 33.8 million ids (facebookresearch/dlrm)
CRITEO_SIZES = (
    *(1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194),
    *(27, 14_992, 5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)


def draw_ids(traffic: str, num_ids: int, count: int, generator: torch.Generator) -> Tensor:
    """`count` ids below `num_ids`; by "zipf", id `i` comes in proportion to `1 / (i + 1)`."""
    if traffic == "uniform":
        return torch.randint(0, num_ids, (count,), generator=generator)
    # the sum of 1/i up to n is nearly log n: draw the exponent and turn it back into an id
    exponents = torch.rand(count, generator=generator, dtype=torch.float64)
    return ((num_ids + 1.0) ** exponents).long().sub_(1).clamp_(0, num_ids - 1)


def draw_batch(traffic: str, sizes: tuple[int, ...], count: int, generator: torch.Generator) -> Tensor:
    """Ids `(count, features)`."""
    return torch.stack([draw_ids(traffic, size, count, generator) for size in sizes], dim=1)
