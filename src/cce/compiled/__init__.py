"""Loops compiled to machine code by numba, the threads that run them, and raw memory."""

from cce.compiled.loops import available, compile_loops, warn_plain, why_plain
from cce.compiled.threads import parallel_for, scratch

__all__ = ["available", "compile_loops", "parallel_for", "scratch", "warn_plain", "why_plain"]
