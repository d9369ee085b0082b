"""Python loops compiled on first use by numba.

`CCE_COMPILED=0`, `NUMBA_DISABLE_JIT=1`, or a numba that cannot be imported, turns compilation off; plain torch then
does all the work. `CCE_COMPILED=1` waits for compilations that would otherwise go on in the background (`background`).
"""

import importlib
import os
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from cce.compiled.disk_cache import function_folder, share

Function = TypeVar("Function", bound="Callable[..., Any]")


def _why_plain() -> str:
    """The reason why nothing is compiled; empty if loops are compiled."""
    setting = os.environ.get("CCE_COMPILED", "")
    if setting not in ("", "0", "1"):
        raise ValueError(f"CCE_COMPILED must be 0 or 1, got {setting!r}.")
    if setting == "0":
        return "CCE_COMPILED=0 is set"
    try:
        config = importlib.import_module("numba").config
    except Exception as error:  # noqa: BLE001  a broken numba or llvmlite raises whatever it likes
        return f"numba cannot be imported ({type(error).__name__}: {' '.join(str(error).split())})"
    return "NUMBA_DISABLE_JIT=1 is set" if config.DISABLE_JIT else ""


why_plain: str = _why_plain()
available: bool = not why_plain


@cache
def warn_plain() -> None:
    """Warn, once per process, that plain torch replaces the compiled loops."""
    warnings.warn(f"cce runs in plain torch, many times slower than compiled loops: {why_plain}.", stacklevel=3)


def compile_loops(function: Function) -> Function:
    """Compile `function` on first use, cached on disk and without the GIL; return it unchanged if that is off."""
    if not available:
        return function
    numba = importlib.import_module("numba")
    options: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
    folder = function_folder(function)
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
    try:
        loops = numba.njit(cache=folder is not None, **options)(function)
    except RuntimeError:  # the function is in no file: every process compiles it again
        return cast("Function", numba.njit(**options)(function))
    finally:
        numba.config.CACHE_DIR = before
    if folder is not None:
        share(loops, folder)
    return cast("Function", loops)
