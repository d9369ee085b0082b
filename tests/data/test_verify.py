"""A data set that is right has no problems; of one that is not, every problem is listed."""

import numpy as np
import pytest

from cce.data import PreparedData, SyntheticConfig, prepare_synthetic
from cce.data.prepared import verify_data
from helpers.raw_files import table_with_everything


@pytest.fixture
def made(tmp_path):
    prepare_synthetic(tmp_path / "x", SyntheticConfig(num_rows=500, vocabulary_sizes=(300, 5)), progress=False)
    return tmp_path / "x"


def change(path, dtype, index, value):
    numbers = np.fromfile(path, dtype)
    numbers[index] = value
    numbers.tofile(path)


@pytest.mark.slow
def test_data_sets_that_are_right_have_no_problems(made, tmp_path):
    found = verify_data(made)
    size = sum(path.stat().st_size for path in made.glob("*.rows"))
    assert (found.kind, found.path, found.problems) == ("data", str(made), [])
    assert found.checked == {"files": 3, "bytes": size, "rows": 500}
    everything = verify_data(table_with_everything(tmp_path))
    assert everything.problems == []
    assert everything.checked["files"] == 3 * 3 + 2
    assert everything.to_dict()["checked"] == everything.checked


def test_every_problem_is_listed(made):
    dtype = PreparedData.open(made).rows("train")._dtype
    change(made / "train.rows", dtype["label"], 0, 3)  # the first value of the first record
    (made / "validation.rows").write_bytes(b"")
    (made / "test.rows").unlink()
    problems = verify_data(made).problems
    assert [problem.split(" must ")[0] for problem in problems] == [
        f"{made / 'test.rows'}",
        f"{made / 'train.rows'}",
        f"{made / 'validation.rows'}",
        f"{made / 'train.rows'}, row 0: label",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("row", [0, 262_143, 262_144, 299_999])
def test_values_are_found_in_every_chunk(tmp_path, row):
    config = SyntheticConfig(num_rows=400_000, vocabulary_sizes=(300,), num_dense=0)
    prepare_synthetic(tmp_path / "x", config, progress=False)
    dtype = PreparedData.open(tmp_path / "x").rows("train")._dtype
    records = np.fromfile(tmp_path / "x" / "train.rows", dtype)
    records["id0"][row] = 301
    records.tofile(tmp_path / "x" / "train.rows")
    assert verify_data(tmp_path / "x").problems[1:] == [
        f"{tmp_path / 'x' / 'train.rows'}, row {row}: c0 must be in [0, 301), got 301."
    ]


def test_a_damaged_vocabulary_is_known_by_its_checksum(tmp_path):
    folder = table_with_everything(tmp_path)
    assert verify_data(folder).problems == []
    (folder / "vocabulary" / "000.parquet").write_bytes(b"")
    (problem,) = verify_data(folder).problems
    assert problem.startswith(f"{folder / 'vocabulary' / '000.parquet'} must have ")


@pytest.mark.slow
def test_a_split_without_rows_is_right(made, tmp_path):
    folder = table_with_everything(tmp_path, "--test", "0")
    assert PreparedData.open(folder).num_rows("test") == 0
    assert verify_data(folder).problems == []
