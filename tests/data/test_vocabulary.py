"""Vocabularies: texts to ids and back, from a mapped file."""

import time

import numpy as np
import pytest

from cce.data.vocabulary import Vocabulary
from cce.hashing import Texts, fnv1a

WORDS = ["b", "", "löwe", "a longer word", "b ", "B", "12"]


def built(words=WORDS, kind="words"):
    return Vocabulary.build("item", kind, Texts.of(words))


def test_every_value_has_its_id_and_others_have_zero():
    vocabulary = built()
    assert vocabulary.find(WORDS).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert vocabulary.find(["nowhere", "12", "b"]).tolist() == [0, 7, 1]
    assert vocabulary.values([0, 3, 1]) == [None, "löwe", "b"]
    assert (len(vocabulary), vocabulary.find([]).tolist(), built([]).find(["a"]).tolist()) == (7, [], [0])
    with pytest.raises(ValueError, match=r"^ids of 'item' must lie in \[0, 8\)\.$"):
        vocabulary.values([8])


def test_a_text_longer_than_any_of_the_vocabulary_is_unseen_without_hashing_it():
    beyond = ["a longer word" + "x" * 1_000_000, "a longer words", "12"]
    started = time.process_time()
    fnv1a(Texts.of(beyond))
    whole, started = time.process_time() - started, time.process_time()
    assert built().find(beyond).tolist() == [0, 0, 7]
    assert time.process_time() - started < whole / 5


def test_a_mapped_file_finds_the_same_wherever_it_begins(tmp_path):
    words = [f"w{n * 7919}" for n in range(5000)]
    built(words).save(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"x" * 64 + (tmp_path / "a").read_bytes())
    for path, start in (("a", 0), ("b", 64)):
        opened = Vocabulary.open(tmp_path / path, start)
        assert (opened.find(words) == np.arange(1, 5001)).all()
        assert (opened.feature, opened.kind, opened.values([5000])) == ("item", "words", [words[-1]])
        assert not opened.hashes.flags.writeable


def test_values_with_the_same_hash_are_told_apart():
    texts = Texts.of(["one", "two", "three"])
    same = np.repeat(fnv1a(Texts.of(["two"])), 3)
    vocabulary = Vocabulary("item", "words", same, np.array([3, 1, 2], np.int32), texts)
    assert vocabulary.find(["two", "one"]).tolist() == [2, 0]  # the hash of "one" is not there
    assert Vocabulary("item", "words", same[:2], np.array([3, 1], np.int32), texts).find(["two"]).tolist() == [0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[:-9], "must be a whole safetensors file, and it is damaged"),
        (lambda raw: raw[:4], "must be a whole safetensors file, and it is damaged"),
        (lambda raw: b"\xff" * 8 + raw[8:], "must be a whole safetensors file, and it is damaged"),
        (
            lambda raw: raw.replace(b'"version":"1"', b'"version":"2"'),
            "of version 1, got 'cce-vocabulary', version '2'",
        ),
        (lambda raw: raw.replace(b'"hashes"', b'"hushes"'), "must be a whole vocabulary, and 'hashes' is missing"),
    ],
)
def test_a_damaged_or_newer_file_is_rejected_by_name(tmp_path, change, message):
    built().save(tmp_path / "a")
    (tmp_path / "a").write_bytes(change((tmp_path / "a").read_bytes()))
    with pytest.raises(ValueError, match=message) as caught:
        Vocabulary.open(tmp_path / "a")
    assert str(caught.value).startswith(f"{tmp_path / 'a'} must")
    assert "\n" not in str(caught.value)
