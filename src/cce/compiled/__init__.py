"""Loops compiled to machine code where numba is installed, the threads that run them, and raw memory."""

from cce.compiled.loops import available, compile_loops
from cce.compiled.threads import parallel_for, scratch

__all__ = ["available", "compile_loops", "parallel_for", "scratch"]
