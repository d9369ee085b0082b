"""The first step: pieces of raw files into blocks, with what was missing, negative, left out or malformed."""

import dataclasses
import gzip

import numpy as np
import pytest

from cce.data.arrow.blocks import load_numbers
from cce.data.preparation.job import Columns, Reading
from cce.data.preparation.reading import Piece, read_piece
from cce.data.raw_files import Input

COLUMNS = Columns("y", ("a",), ("x",))
READING = Reading(names=("y", "x", "a"), delimiter=",", has_header=True)
TEXT = b"y,x,a\n" + b"".join(b"%d,%d,w%d\n" % (row % 2, row - 3, row) for row in range(100))


def piece(tmp_path, text=TEXT, *, index=0, reading=READING, block_bytes=1 << 20, name="raw.csv"):
    (tmp_path / "work").mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return Piece(Input(tmp_path / name), 0, index, tmp_path / "work", COLUMNS, reading, block_bytes)


def column(some, facts, name):
    return np.concatenate([load_numbers(some.folder / fact["name"], name) for fact in facts]).tolist()


def test_dense_numbers_are_logs_and_missing_or_negative_ones_are_counted(tmp_path):
    some = piece(tmp_path, b"y,x,a\n1,0,u\n0,,u\n0,-2,u\n1,7,u\n1,nan,u\n")
    facts = read_piece(some)
    assert facts[0]["missing"] == {"x": 2}
    assert facts[0]["negative"] == {"x": 1}
    assert column(some, facts, "dense 0") == pytest.approx([0, 0, 0, np.log(8), 0])
    assert column(some, facts, "label") == [1, 0, 0, 1, 1]


def test_dense_numbers_may_stay_as_they_are(tmp_path):
    some = piece(
        tmp_path, b"y,x,a\n1,-2.5,u\n0,,u\n", reading=dataclasses.replace(READING, transforms=(("x", "identity"),))
    )
    facts = read_piece(some)
    assert column(some, facts, "dense 0") == [-2.5, 0]
    assert facts[0]["negative"] == {"x": 0}


def test_pieces_of_a_plain_file_make_up_the_whole(tmp_path):
    whole = piece(tmp_path)
    expected = column(whole, read_piece(whole), "dense 0")
    pieces = [dataclasses.replace(whole, index=n, block_bytes=100, file=1) for n in range(-(-len(TEXT) // 100))]
    facts = [fact for some in pieces for fact in read_piece(some)]
    assert len(facts) > 5
    assert column(whole, [fact for fact in facts if fact["num_rows"]], "dense 0") == expected
    gz = piece(tmp_path, index=None, block_bytes=100, name="raw.csv.gz")
    zipped = read_piece(dataclasses.replace(gz, file=2))
    assert [fact["num_rows"] for fact in zipped] == [fact["num_rows"] for fact in facts]
    assert column(gz, zipped, "dense 0") == expected


def test_rows_without_a_label_are_malformed(tmp_path):
    facts = read_piece(piece(tmp_path, b"y,x,a\n1,0,u\n,0,u\nyes,1,u\n\n1,0,u\n"))
    assert facts[0]["num_rows"] == 2
    assert facts[0]["num_bad"] == 3
    nothing = "y must be a number, got nothing"
    blank = "expected 3 columns, got a blank line"
    assert facts[0]["bad"] == [(1, nothing), (2, "y must be a number, got 'yes'"), (3, blank)]


def test_labels_have_a_threshold_and_some_are_left_out(tmp_path):
    reading = dataclasses.replace(READING, threshold=4, drop_label=3)
    some = piece(tmp_path, b"y,x,a\n5,0,u\n3,0,u\n3.5,0,u\n4,0,u\n1,0,u\n", reading=reading)
    facts = read_piece(some)
    assert column(some, facts, "label") == [1, 0, 1, 0]
    assert (facts[0]["num_rows"], facts[0]["num_dropped"], facts[0]["num_bad"]) == (4, 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["rows", "negatives"])
def test_a_sample_is_the_same_whatever_the_pieces_and_spares_positive_rows(tmp_path, sample):
    text = b"y,x,a\n" + b"".join(b"%d,%d,u\n" % (row % 5 == 0, row) for row in range(4000))
    reading = dataclasses.replace(READING, sample=sample, keep=0.125)
    some = piece(tmp_path, text, index=None, reading=reading, name="raw.csv.gz", block_bytes=1000)
    facts = read_piece(some)
    labels = column(some, [fact for fact in facts if fact["num_rows"]], "label")
    share = 0.125 if sample == "rows" else 1
    assert labels.count(1) == pytest.approx(800 * share, abs=45 if sample == "rows" else 0)
    assert labels.count(0) == pytest.approx(3200 * 0.125, abs=90)
    assert sum(fact["num_dropped"] for fact in facts) == 4000 - len(labels)
    plain = [piece(tmp_path, text, index=n, reading=reading, block_bytes=1000) for n in range(-(-len(text) // 1000))]
    again = [fact for other in plain for fact in read_piece(dataclasses.replace(other, folder=tmp_path))]
    assert [fact["num_rows"] for fact in again] == [fact["num_rows"] for fact in facts]


def test_a_piece_that_was_read_is_not_read_again(tmp_path):
    some = piece(tmp_path)
    facts = read_piece(some)
    some.input.path.unlink()
    assert read_piece(some) == facts


def test_a_file_of_nothing_but_a_header_has_no_blocks(tmp_path):
    assert read_piece(piece(tmp_path, b"y,x,a\n")) == []
    assert read_piece(dataclasses.replace(piece(tmp_path, b"y,x,a"), file=7)) == []
