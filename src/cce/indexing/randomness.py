"""Where random numbers come from: a generator that is given, a new one with a seed, or torch's global one.

With several processes torch's global generator is rank 0's alone, since processes do not seed it alike by themselves.
"""

from __future__ import annotations

import torch

from cce.checks import check_range, check_type
from cce.distributed import broadcast, current_ranks

MAX_SEED = 2**64  # torch takes no larger one


def check_generator(generator: torch.Generator | None) -> None:
    """Reject what is not a generator, such as a seed."""
    check_type("generator", generator, (torch.Generator, type(None)), "a torch.Generator")


def make_generator(seed: int | None, generator: torch.Generator | None = None) -> torch.Generator | None:
    """The generator, or a new one with this seed, or the common one of several ranks; None is torch's global one."""
    check_generator(generator)
    if seed is None:
        return common_generator(generator)
    check_range("seed", seed, 0, MAX_SEED)
    if generator is not None:
        raise ValueError(f"give one of seed and generator, got seed={seed} and a generator.")
    return torch.Generator().manual_seed(int(seed))


def common_generator(generator: torch.Generator | None) -> torch.Generator | None:
    """The generator; if there is none and there are several ranks, a new one with a seed that rank 0 draws.

    Without a generator this is a collective: every rank must call it. One process alone keeps torch's global generator.
    """
    check_generator(generator)
    ranks = current_ranks()
    if generator is not None or ranks.world_size == 1:
        return generator
    seed = int(torch.randint(2**62, (), device="cpu"))  # all draw, so that equal global generators stay equal
    return torch.Generator().manual_seed(broadcast(seed, ranks))
