"""Where all random number generators are."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """The states of torch (on every device), Python and numpy."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002  # what a user's model may draw from
    return {
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(device) for device in range(torch.cuda.device_count())],
        "python": random.getstate(),
        "numpy": (str(kind), torch.from_numpy(np.asarray(keys, np.int64)), *rest),
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Go on where `random_state` was taken; devices that were not there keep their own."""
    torch.set_rng_state(state["torch"])
    for device, cuda in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(cuda, device)
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002


def seed_everything(seed: int) -> None:
    """Start all of them at a seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
