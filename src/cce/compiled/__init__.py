"""Loops compiled to machine code by numba, the threads that run them, and raw memory."""

from cce.compiled import memory
from cce.compiled.background import is_compiled
from cce.compiled.loops import available, compile_loops, warn_plain, why_plain
from cce.compiled.memory import KINDS, RUNS, longest_run
from cce.compiled.threads import parallel_for, scratch
