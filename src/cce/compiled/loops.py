"""Python loops compiled on first use by numba.

`CCE_COMPILED=0`, or a numba that cannot be imported, turns compilation off; plain torch then does all the work.

numba keeps compiled functions on disk and compiles one again when its own file changes, but not when a function that it
calls changes in another file. Loops that pass each other addresses must not run with an old partner, so the cache is
bound to the text of all files of this package that have loops.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import uuid4

from cce.compiled.notice import listen

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = Path(__file__).resolve().parents[1]
PACKAGES = (
    "compiled",
    "indexing",
    "clustering",
    "kernels",
    "optim",
)  # with loops, or constants used in them

Function = TypeVar("Function", bound="Callable[..., Any]")


def _why_plain() -> str:
    """The reason why nothing is compiled; empty if loops are compiled."""
    setting = os.environ.get("CCE_COMPILED", "")
    if setting not in ("", "0", "1"):
        raise ValueError(f"CCE_COMPILED must be 0 or 1, got {setting!r}.")
    if setting == "0":
        return "CCE_COMPILED=0 is set"
    try:
        import numba  # noqa: F401
    except Exception as error:  # noqa: BLE001  a broken numba or llvmlite raises whatever it likes
        return f"numba cannot be imported ({type(error).__name__}: {' '.join(str(error).split())})"
    return ""


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
    import numba

    listen()
    _tell_apart(function)

    options: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
    try:
        loops = numba.njit(cache=True, **options)(function)
        _bind(loops)
        return cast("Function", loops)
    except (
        RuntimeError,
        AttributeError,
    ):  # no folder to write to, or another numba inside: every process compiles again
        return cast("Function", numba.njit(**options)(function))


def _tell_apart(function: Any) -> None:
    """Name a function that another one made by the values that it was made with.

    numba names compiled code by the function and a count of the process. Two functions of one name that two processes
    have compiled may so have the same name, and who calls both, from the cache on disk, would call one of them twice.
    """
    if function.__closure__ is not None:
        values = [str(getattr(cell.cell_contents, "__qualname__", cell.cell_contents)) for cell in function.__closure__]
        function.__qualname__ += "_" + hashlib.sha256("|".join(values).encode()).hexdigest()[:16]


def _bind(loops: Any) -> None:
    """Bind the cache of numba on disk to the current text of the package's files.

    Every piece of code gets its own file. numba numbers them, and two processes that compile at once give two
    pieces the same number: one would then run the other's code.
    """
    cache_file = loops._cache._cache_file
    base = cache_file._data_name(0).removesuffix(".0.nbc")
    cache_file._source_stamp = (cache_file._source_stamp, digest(PACKAGE))
    cache_file._data_name = lambda _: f"{base}.{uuid4().hex}.nbc"


@cache
def digest(package: Path) -> str:
    """The digest of the text of all files with loops."""
    text = hashlib.sha256()
    for name in PACKAGES:
        for path in sorted((package / name).rglob("*.py")):
            text.update(path.read_bytes())
    return text.hexdigest()
