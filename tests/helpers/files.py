"""A disk that is full half-way."""

import resource
from contextlib import contextmanager


@contextmanager
def small_files(num_bytes):
    """Let writing to a file fail from so many bytes on, as it does when a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
