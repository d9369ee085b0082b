"""The format on disk is kept: the same raw files give the same bytes as they always did.

A vocabulary is compared by its values and counts, since Parquet files carry the version of their writer.
"""

import gzip
import hashlib
import json

import pyarrow.parquet as pq
import pytest
from benchmarks.criteo_text import write_criteo_text

from cce.cli import main
from helpers.raw_files import write_csv

TABLE = [
    (n * n % 3 // 2, f"u{n * 7 % 31}", n % 5 or "", "|".join(f"t{n * k % 11}" for k in range(n % 4)), n % 9 - 1, n)
    for n in range(500)
]
WORDS = ("--label", "y", "--categorical", "user", "item", "--multi-hot", "tags", "--dense", "age", "--weight", "time")
DIGESTS = {
    "kaggle": "dfd8118fd0ae7451",
    "terabyte": "4c25ca681076ad9a",
    "movielens": "5046c83999daa143",
    "temporal": "ea29f704fb4fd49b",
    "random": "031f8fd474c4e91c",
}


def write_raw(folder):
    write_criteo_text(folder / "train.txt", 700)
    for day in range(3):
        write_criteo_text(folder / "days" / f"day_{day}", 200, seed=day)
    (folder / "days" / "day_1.gz").write_bytes(gzip.compress((folder / "days" / "day_1").read_bytes()))
    (folder / "days" / "day_1").unlink()
    ratings = (f"{n * n % 23}::{n * 7 % 41}::{1 + n % 5}::{n * 37 % 101}\n" for n in range(400))
    (folder / "ratings.dat").write_text("".join(ratings))
    write_csv(folder / "clicks.csv", ("y", "user", "item", "tags", "age", "time"), TABLE)


def digest(folder):
    """One checksum of everything that a reader of the data set sees."""
    found = hashlib.sha256()
    manifest = json.loads((folder / "manifest.json").read_text())
    found.update(json.dumps([manifest["format"], manifest["schema"], manifest["splits"]]).encode())
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    assert len(paths) >= 3
    for path in paths:
        content = repr(pq.read_table(path).to_pydict()).encode() if path.suffix == ".parquet" else path.read_bytes()
        found.update(path.relative_to(folder).as_posix().encode() + content)
    return found.hexdigest()[:16]


CASES = {
    "kaggle": ("criteo-kaggle", "train.txt", "OUT", "--min-count", "2"),
    "terabyte": ("criteo-terabyte", "days", "OUT", "--sample", "negatives", "--keep", "0.5", "--modulus", "1000"),
    "movielens": ("movielens", "ratings.dat", "OUT"),
    "temporal": ("table", "clicks.csv", "OUT", *WORDS, "--split", "temporal", "--timestamp", "time"),
    "random": ("table", "clicks.csv", "OUT", *WORDS, "--split", "random", "--seed", "3"),
}


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    write_raw(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_preparation_gives_the_bytes_that_it_always_gave(name, raw, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(raw)
    words = [str(tmp_path / "out") if word == "OUT" else word for word in CASES[name]]
    assert main(["prepare", *words, "--json"]) == 0
    assert digest(tmp_path / "out") == DIGESTS[name]
