"""Where random numbers come from: a generator that is given, a new one with a seed, or torch's global one."""

from __future__ import annotations

import torch

from cce.checks import check_range, check_type

MAX_SEED = 2**64  # torch takes no larger one


def check_generator(generator: torch.Generator | None) -> None:
    """Reject what is not a generator, such as a seed."""
    check_type("generator", generator, (torch.Generator, type(None)), "a torch.Generator")


def make_generator(seed: int | None, generator: torch.Generator | None = None) -> torch.Generator | None:
    """The generator, or a new one with this seed; None stands for torch's global one."""
    check_generator(generator)
    if seed is None:
        return generator
    check_range("seed", seed, 0, MAX_SEED)
    if generator is not None:
        raise ValueError(f"give one of seed and generator, got seed={seed} and a generator.")
    return torch.Generator().manual_seed(int(seed))
