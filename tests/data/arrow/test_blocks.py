"""Blocks of columns, in memory and on disk."""

import numpy as np

from cce.data.arrow.blocks import Words, as_values, load_numbers, load_words, save_block
from cce.data.arrow.tables import parse_text
from cce.data.preparation.job import Columns, Reading
from helpers.raw_files import bags_of, words_of

COLUMNS = Columns("y", ("a", "b"), ("x",), multi_hot=("t",))
READING = Reading(names=("y", "x", "a", "b", "t"), delimiter=",")


def test_a_block_survives_its_file(tmp_path):
    word = Words(np.array([1, -1, 0], np.int32), as_values(["p", "q"]))
    bag = Words(np.array([0, 0, 1], np.int32), as_values(["r", "s"]), np.array([2, 0, 1]))
    save_block(tmp_path / "b", {"label": np.array([1.0, 0.0, 1.0])}, {"word a": word, "word t": bag})
    assert load_numbers(tmp_path / "b", "label").tolist() == [1, 0, 1]
    assert words_of(load_words(tmp_path / "b", "word a")) == ["q", None, "p"]
    assert bags_of(load_words(tmp_path / "b", "word t", 1)) == [["r", "r"], [], ["s"]]


def test_keeping_rows_keeps_their_bags():
    raw = parse_text(b"1,1,u,w,p|q\n0,2,v,w,r\n1,3,u,w,\n", COLUMNS, READING).keep(np.array([True, False, True]))
    assert bags_of(raw.words["t"]) == [["p", "q"], []]
    assert raw.numbers["x"].tolist() == [1, 3]
    assert raw.lines.tolist() == [0, 2]
