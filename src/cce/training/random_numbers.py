"""The random numbers of the process, saved and restored: those of torch, Python and numpy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Leave the random numbers of the process as they were: a model that is built seeds them all."""
    before = random_state()
    try:
        yield
    finally:
        restore_random_state(before)
