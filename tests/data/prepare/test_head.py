"""The first rows of raw data stand for all of them."""

import gzip
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cce.data.prepare import head
from cce.data.prepare.columns import Columns
from cce.data.prepare.job import Splitting
from cce.data.sources.criteo_terabyte import criteo_terabyte_job
from cce.data.sources.criteo_text import write_criteo_text
from cce.data.sources.movielens import movielens_job
from cce.data.sources.table import table_job
from helpers.raw_files import run, write_csv

ROWS = [(n % 2, f"u{n % 9}", n) for n in range(20_000)]
COLUMNS = Columns("y", ("user",), ("age",))


@pytest.fixture(autouse=True)
def small_heads(monkeypatch):
    monkeypatch.setattr(head, "HEAD_BYTES", 50_000)
    monkeypatch.setattr(head, "HEAD_ROWS", 3000)


def num_rows_by_head(job, folder):
    """How many rows the first ones say that there are."""
    folder.mkdir(exist_ok=True)
    first, factor = head.head_of(job, folder)
    data = run(first, folder / "data")
    assert factor > 1
    assert data.num_rows("train") > 0
    return sum(data.manifest["splits"].values()) * factor, data


def test_a_text(tmp_path):
    write_csv(tmp_path / "a.csv", ("y", "user", "age"), ROWS)
    job = table_job(tmp_path / "a.csv", COLUMNS, splitting=Splitting("order"))
    found, data = num_rows_by_head(job, tmp_path / "head")
    assert found == pytest.approx(20_000, rel=0.1)
    assert data.schema.vocabulary_sizes == {"user": 10}
    assert data.num_rows("test") / data.num_rows("train") == pytest.approx(0.125, rel=0.01)


def test_a_gzipped_text(tmp_path):
    write_csv(tmp_path / "a.csv", ("y", "user", "age"), ROWS)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    found, _ = num_rows_by_head(table_job(tmp_path / "b.csv.gz", COLUMNS), tmp_path / "head")
    assert found == pytest.approx(20_000, rel=0.6)  # a gzip is read in large steps


def test_a_member_of_a_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "ml.zip", "w") as archive:
        archive.writestr("ml/u.data", "".join(f"{n % 50}\t{n % 77}\t{1 + n % 2 * 4}\t{n}\n" for n in range(20_000)))
    found, _ = num_rows_by_head(movielens_job(tmp_path / "ml.zip"), tmp_path / "head")
    assert found == pytest.approx(20_000, rel=0.1)


def test_parquet_files(tmp_path):
    columns = {"y": [n % 2 for n in range(5000)], "user": list(range(5000)), "age": [1] * 5000}
    for name in ("a", "b"):
        (tmp_path / "raw").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), tmp_path / "raw" / f"{name}.parquet", row_group_size=2000)
    found, _ = num_rows_by_head(table_job(tmp_path / "raw", COLUMNS), tmp_path / "head")
    assert found == 10_000


@pytest.mark.slow
def test_files_of_days_hold_out_the_share_of_the_last(tmp_path):
    for day in range(4):
        write_criteo_text(tmp_path / "days" / f"day_{day}", 500, seed=day)
    found, data = num_rows_by_head(criteo_terabyte_job(tmp_path / "days"), tmp_path / "head")
    assert found == pytest.approx(2000, rel=0.1)
    held_out = data.num_rows("validation") + data.num_rows("test")
    assert held_out / sum(data.manifest["splits"].values()) == pytest.approx(0.25, abs=0.06)


def test_a_split_by_column_is_one_by_chance(tmp_path):
    write_csv(tmp_path / "a.csv", ("y", "user", "age"), ROWS)
    job = table_job(tmp_path / "a.csv", COLUMNS, splitting=Splitting("column", column="age", test_values=("1",)))
    (tmp_path / "head").mkdir()
    assert head.head_of(job, tmp_path / "head")[0].splitting == Splitting()


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="day_0 must be a file, and there is none"):
        head.head_of(criteo_terabyte_job(tmp_path / "day_0"), tmp_path)
