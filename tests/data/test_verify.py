"""A data set that is right has no problems; of one that is not, every problem is listed."""

import pytest

from cce.data import PreparedData, SyntheticConfig, prepare_synthetic
from cce.data.prepared import verify_data
from helpers.raw_files import table_with_everything


@pytest.fixture
def made(tmp_path):
    prepare_synthetic(tmp_path / "x", SyntheticConfig(num_rows=500, vocabulary_sizes=(300, 5)), progress=False)
    return tmp_path / "x"


@pytest.mark.slow
def test_data_sets_that_are_right_have_no_problems(made, tmp_path):
    found = verify_data(made)
    size = sum(path.stat().st_size for path in made.glob("*.rows"))
    assert (found.kind, found.path, found.problems) == ("data", str(made), [])
    assert found.checked == {"files": 3, "bytes": size, "rows": 500}
    everything = verify_data(table_with_everything(tmp_path))
    assert everything.problems == []
    assert everything.checked["files"] == 3 * 3 + 2


def test_every_problem_is_listed(made):
    with (made / "train.rows").open("r+b") as file:
        file.write(b"\xff")
    (made / "validation.rows").write_bytes(b"")
    (made / "test.rows").unlink()
    problems = verify_data(made).problems
    assert [problem.split(" must ")[0] for problem in problems] == [
        f"{made / 'test.rows'}",
        f"{made / 'train.rows'}",
        f"{made / 'validation.rows'}",
    ]


@pytest.mark.slow
def test_a_split_without_rows_is_right(made, tmp_path):
    folder = table_with_everything(tmp_path, "--test", "0")
    assert PreparedData.open(folder).num_rows("test") == 0
    assert verify_data(folder).problems == []
