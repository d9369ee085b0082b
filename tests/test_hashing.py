"""Hashes of strings and bytes: pinned, the same for every container, and quick."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import cce
from cce.hashing import Texts, fnv1a

PINNED = {  # of all platforms and versions: never change these
    "": -780787492076525413,
    "a": 198367012849983736,
    "foobar": 4633546387131234498,
    "user-1234567": 8229766796488575930,
    "é€😀": 5668015751949858849,
    "x" * 100: 4251145938342222280,
}


def by_hand(text):
    """FNV-1a and the mixer of splitmix64, in integers of Python."""
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ state >> shift) * factor % 2**64
    state ^= state >> 31
    return state - 2**64 if state >= 2**63 else state


def test_hashes_are_pinned():
    found = cce.hashing.hash_ids(list(PINNED))
    assert found.dtype == np.int64
    assert found.tolist() == list(PINNED.values()) == [by_hand(text) for text in PINNED]


@pytest.mark.parametrize(
    "make",
    [
        tuple,
        np.array,
        lambda words: np.array(words, object),
        lambda words: np.array([word.encode() for word in words], object),
        lambda words: [word.encode() for word in words],
        pa.array,
        lambda words: pa.array(["other", *words])[1:],
        lambda words: pa.array(words, pa.large_string()),
        lambda words: pa.array([word.encode() for word in words]),
        lambda words: pa.array(words).dictionary_encode(),
        lambda words: pa.chunked_array([words[:2], words[2:]]),
        pd.Series,
        lambda words: pd.Series(words, dtype="string[pyarrow]"),
        lambda words: pd.Series(words, dtype="category"),
        pl.Series,
    ],
)
def test_every_container_gives_the_same(make):
    assert cce.hashing.hash_ids(make(list(PINNED))).tolist() == list(PINNED.values())


def test_many_texts_are_hashed_as_by_hand_and_an_array_keeps_its_shape():
    words = [f"{n * n}-{'y' * (n % 40)}" for n in range(1000)]
    assert cce.hashing.hash_ids(words).tolist() == [by_hand(word) for word in words]
    assert cce.hashing.hash_ids(np.array(words).reshape(10, 100)).shape == (10, 100)
    assert len(np.unique(cce.hashing.hash_ids(words))) == 1000
    for empty in ([], pa.array([], pa.string()), np.array([], "U3")):
        assert cce.hashing.hash_ids(empty).tolist() == []


def test_fnv1a_has_its_published_values():
    known = {"": 0xCBF29CE484222325, "a": 0xAF63DC4C8601EC8C, "foobar": 0x85944171F73967E8}
    assert fnv1a(Texts.of(list(known))).tolist() == list(known.values())


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([1, 2], TypeError, "values must be strings or bytes, got 1 at index 0"),
        (["a", None], TypeError, "values must be strings or bytes, got None at index 1"),
        (pa.array([1]), TypeError, "values must be strings or bytes, got an array of int64"),
        (pa.array(["a", None]), ValueError, "values must have no missing ones, got 1, the first at index 1"),
    ],
)
def test_other_values_are_rejected(values, error, message):
    with pytest.raises(error, match=message):
        cce.hashing.hash_ids(values)
