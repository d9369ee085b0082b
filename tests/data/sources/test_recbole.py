"""RecBole's atomic files: types in the header, sequences with blanks, and what is wrong with others."""

import itertools

import pytest

from cce.data.preparation.job import Columns
from cce.data.sources.recbole import RECBOLE
from helpers.raw_files import rows_of, run, vocabulary_of

HEADER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\ttags:token_seq\tprice:float"
ROWS = [(f"u{n % 4}", f"i{n % 6}", 1 + n % 5, 100 - n, " ".join("ab"[: n % 3]), n) for n in range(50)]


@pytest.fixture
def inter(tmp_path):
    (tmp_path / "set").mkdir()
    lines = [HEADER, *("\t".join(map(str, row)) for row in ROWS)]
    (tmp_path / "set" / "ml.inter").write_text("\n".join(lines) + "\n")
    (tmp_path / "set" / "ml.item").write_text("item_id:token\n")
    return tmp_path / "set" / "ml.inter"


def test_types_say_what_columns_are(inter):
    job = RECBOLE.job(inter.parent, {"threshold": 4.0})
    assert job.columns == Columns("rating", ("user_id", "item_id"), ("price",), ("tags",), timestamp="timestamp")


def test_rows_are_as_by_hand(inter, tmp_path):
    data = run(RECBOLE.job(inter, {"threshold": 4.0, "split": "temporal"}), tmp_path / "out")
    latest = [row for row in ROWS if row[3] > 60]  # of 50 distinct times, the first 80 % are for training
    assert data.num_rows("train") == 40
    batch = next(iter(data.loader("train", batch_size=40, shuffle=False)))
    train = [row for row in ROWS if row[3] <= 90]
    assert batch.labels.tolist() == [float(row[2] >= 4) for row in train]
    tags = vocabulary_of([tag for row in train for tag in row[4].split()])
    bags = [batch.ids[a:b].tolist() for a, b in itertools.pairwise(batch.offsets.tolist())]
    assert bags[80:] == [[tags[tag] for tag in row[4].split()] for row in train]
    assert len(latest) == 40


def test_a_label_column_comes_first_and_may_be_named(tmp_path):
    (tmp_path / "a.inter").write_text("user_id:token\trating:float\tlabel:float\n" + "u\t5\t1\n" * 9)
    data = run(RECBOLE.job(tmp_path / "a.inter", {"split": "order"}), tmp_path / "out")
    assert data.schema.dense == ("rating",)
    assert rows_of(data, "train")[0][0] == 1
    named = RECBOLE.job(tmp_path / "a.inter", {"label": "rating", "threshold": 3.0})
    assert named.columns.dense == ("label",)


@pytest.mark.parametrize(
    ("header", "options", "message"),
    [
        ("user_id\tlabel:float", {}, "must be named NAME:TYPE, such as item_id:token, got 'user_id'"),
        ("user_id:word\tlabel:float", {}, "type of column 'user_id' of .* must be one of token, token_seq, float"),
        ("user_id:token\tclick:float", {}, "must have a column 'label' or 'rating'; it has user_id, click: give label"),
        ("user_id:token\tlabel:float", {"label": "x"}, "must have a column 'x'; it has user_id, label"),
    ],
)
def test_other_files_are_rejected(tmp_path, header, options, message):
    (tmp_path / "a.inter").write_text(header + "\nu\t1\n")
    with pytest.raises(ValueError, match=message):
        RECBOLE.job(tmp_path / "a.inter", options)


def test_a_folder_must_hold_one_file_of_interactions(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"must hold one file that ends in \.inter, got 0"):
        RECBOLE.job(tmp_path, {})
