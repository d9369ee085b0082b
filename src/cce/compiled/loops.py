"""Python loops compiled on first use, where numba is installed.

numba caches compiled functions on disk and compiles one again when its own file changes, but not when a function that
it calls changes in another file: after such an edit, delete the `.nbi` files in `__pycache__`.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., Any]")

available: bool = importlib.util.find_spec("numba") is not None  # numba is the optional extra "fast"


def compile_loops(function: Function) -> Function:
    """Compile `function` on first use, cached on disk and without the GIL; without numba, return it as it is."""
    if not available:
        return function
    import numba

    options: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
    try:
        return cast("Function", numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no folder that can be written to: every process compiles anew
        return cast("Function", numba.njit(**options)(function))
