"""Made files in Criteo's format: the right columns, missing values, Zipf's words, the same for the same seed."""

import re
from collections import Counter

import pytest

from cce.data.sources import criteo_text as module
from cce.data.sources.criteo_text import SIZES, write_criteo_text
from helpers.raw_files import criteo_lines


def test_lines_are_criteos(tmp_path):
    write_criteo_text(tmp_path / "train.txt", 500)
    lines = criteo_lines(tmp_path / "train.txt")
    assert len(lines) == 500
    for line in lines:
        assert len(line) == 40
        assert line[0] in ("0", "1")
        assert all(re.fullmatch(r"(-?\d+)?", number) for number in line[1:14])
        assert all(re.fullmatch(r"([0-9a-f]{8})?", word) for word in line[14:])
    empty = sum(value == "" for line in lines for value in line) / (500 * 39)
    assert empty == pytest.approx(0.05, abs=0.01)


def test_words_are_few_where_the_challenge_has_few_and_uneven(tmp_path):
    write_criteo_text(tmp_path / "train.txt", 2000)
    lines = criteo_lines(tmp_path / "train.txt")
    for feature in range(26):
        counts = Counter(line[14 + feature] for line in lines if line[14 + feature])
        assert len(counts) <= SIZES[feature]
        assert max(counts.values()) > 1.5 * 2000 / SIZES[feature]


def test_blocks_and_seeds_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS", 100)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_criteo_text(tmp_path / name, 250, seed=seed)
    a, b, c = (criteo_lines(tmp_path / name) for name in "abc")
    assert a == b != c
    assert len(a) == len({tuple(line) for line in a}) == 250


def test_no_rows_are_rejected(tmp_path):
    with pytest.raises(ValueError, match="num_rows must lie in"):
        write_criteo_text(tmp_path / "a", 0)
