"""Zstandard through pyarrow: lines, whole texts, and damage."""

import io

import pyarrow as pa
import pytest

from cce.data.arrow.tables import open_zstd
from cce.data.raw_files import DamagedError


def test_text_comes_back_by_lines_and_whole():
    packed = pa.compress(b"one\ntwo\n", "zstd", asbytes=True)
    with open_zstd(io.BytesIO(packed)) as stream:
        assert stream.readline() == b"one\n"
        assert stream.read() == b"two\n"


def test_damage_is_an_error_of_its_own():
    with pytest.raises(DamagedError), open_zstd(io.BytesIO(b"nothing of the kind")) as stream:
        stream.read()
