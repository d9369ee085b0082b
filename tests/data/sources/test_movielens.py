"""MovieLens: three file formats, file or folder, binarised, the last two ratings of each user held out."""

from dataclasses import replace

import numpy as np
import pytest

from cce.data.preparation.job import Splitting
from cce.data.sources.movielens import movielens_job
from helpers.raw_files import rows_of, run

GENERATOR = np.random.default_rng(0)
RATINGS = [
    (int(user), int(movie), int(rating), 978_300_000 + int(time))
    for user, movie, rating, time in zip(
        *(GENERATOR.integers(1, high, 600) for high in (30, 80, 6, 10_000)), strict=True
    )
]
TEXTS = {
    "u.data": "".join(f"{u}\t{m}\t{r}\t{t}\n" for u, m, r, t in RATINGS),
    "ratings.dat": "".join(f"{u}::{m}::{r}::{t}\n" for u, m, r, t in RATINGS),
    "ratings.csv": "userId,movieId,rating,timestamp\n" + "".join(f"{u},{m},{r}.0,{t}\n" for u, m, r, t in RATINGS),
}


def expected_splits():
    kept = [row for row in RATINGS if row[2] != 3]
    splits = {"train": [], "validation": [], "test": []}
    held_out = {}
    for user in {row[0] for row in kept}:
        own = sorted((row[3], index) for index, row in enumerate(kept) if row[0] == user)
        for (_, index), split in zip(own[1:][-2:], ["validation", "test"][-len(own[1:][-2:]) :], strict=True):
            held_out[index] = split
    for index, row in enumerate(kept):
        splits[held_out.get(index, "train")].append(row)
    return splits


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("form", ["file", "folder"])
def test_every_format_gives_the_same_rows(tmp_path, name, form):
    raw = tmp_path / "ml"
    (raw / "ml-x").mkdir(parents=True)
    (raw / "ml-x" / "README").write_text("about")
    (raw / "ml-x" / name).write_text(TEXTS[name])
    raw = raw / "ml-x" / name if form == "file" else raw
    data = run(movielens_job(raw), tmp_path / "out")
    expected = expected_splits()
    for split in data.splits:
        assert [row[0] for row in rows_of(data, split)] == [float(row[2] >= 4) for row in expected[split]]
    assert data.manifest["rows"]["left_out"] == sum(row[2] == 3 for row in RATINGS)
    users = [row[2][0] for row in rows_of(data, "train")]
    assert np.bincount(users)[1:].tolist() == sorted(
        np.bincount([row[0] for row in expected["train"]])[1:], reverse=True
    )


def test_a_temporal_split_holds_out_the_latest(tmp_path):
    (tmp_path / "u.data").write_text(TEXTS["u.data"])
    data = run(replace(movielens_job(tmp_path / "u.data"), splitting=Splitting("temporal")), tmp_path / "out")
    kept = sorted((row for row in RATINGS if row[2] != 3), key=lambda row: row[3])
    assert data.num_rows("test") == pytest.approx(len(kept) / 10, abs=2)
    assert sum(row[0] for row in rows_of(data, "test")) == sum(row[2] >= 4 for row in kept[-data.num_rows("test") :])


def test_half_stars_below_four_are_negative(tmp_path):
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,5,3.5,1\n1,6,3.0,2\n1,7,4.5,3\n2,7,5,3\n")
    data = run(movielens_job(tmp_path), tmp_path / "out")
    assert [row[0] for row in rows_of(data, "train")] == [0, 1]
    assert [row[0] for row in rows_of(data, "test")] == [1]


def test_a_malformed_rating_leaves_the_others_as_they_are(tmp_path):
    for name, more in (("good", ""), ("bad", "1\t2\tfive\t978300000\nbob\t2\t5\t978300000\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "u.data").write_text(TEXTS["u.data"] + more)
    bad = run(replace(movielens_job(tmp_path / "bad"), max_bad_rows=2), tmp_path / "b").manifest
    assert bad["files"] == run(movielens_job(tmp_path / "good"), tmp_path / "g").manifest["files"]
    assert [line.partition(": ")[2] for line in bad["malformed"]] == [
        "rating must be a number, got 'five'",
        "user must be a number, got 'bob'",
    ]
