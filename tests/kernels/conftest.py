"""Processes of their own for Triton, which reads its environment once, when it is imported."""

import importlib.util
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from helpers.triton_process import set_environment


def process(**environment):
    """A process with these environment variables: `process(function, *arguments, **options)`."""
    if importlib.util.find_spec("triton") is None:  # importing it here would disturb other tests
        pytest.skip("Triton is not installed: pip install triton, on Linux")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=set_environment, initargs=(environment,)) as pool:
        yield lambda function, *arguments, **options: pool.submit(function, *arguments, **options).result()


@pytest.fixture(scope="session")
def interpreted():
    """Runs a function where Triton's kernels are interpreted, on the CPU."""
    yield from process(TRITON_INTERPRET="1")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Runs a function where Triton compiles, and has compiled nothing before."""
    yield from process(TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path_factory.mktemp("triton")))
