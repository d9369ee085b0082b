"""Zstandard through pyarrow: lines, whole texts, and damage in the caller's words."""

import io

import pyarrow as pa
import pytest

from cce.data.arrow import open_zstd


class BrokenError(Exception):
    """What the caller says of damaged text."""


def test_text_comes_back_by_lines_and_whole():
    packed = pa.compress(b"one\ntwo\n", "zstd", asbytes=True)
    with open_zstd(io.BytesIO(packed), BrokenError) as stream:
        assert stream.readline() == b"one\n"
        assert stream.read() == b"two\n"


def test_damage_is_raised_as_the_caller_says():
    with pytest.raises(BrokenError), open_zstd(io.BytesIO(b"nothing of the kind"), BrokenError) as stream:
        stream.read()
