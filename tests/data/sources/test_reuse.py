"""New rows in the terms of an old data set: the same value has the same id, an unknown one has 0."""

from dataclasses import replace

import pytest
from benchmarks.criteo_text import write_criteo_text

from cce.data import SyntheticConfig, prepare_synthetic
from cce.data.preparation.job import Columns, Reading, Splitting
from cce.data.preparing import reuse_job
from cce.data.sources.criteo import criteo_kaggle_job, criteo_terabyte_job
from cce.data.sources.movielens import movielens_job
from cce.data.sources.table import table_job
from helpers.raw_files import rows_of, run, write_csv


def test_new_rows_have_the_old_ids_and_unknown_values_zero(tmp_path):
    write_csv(tmp_path / "old.csv", ("y", "a"), [(1, "p"), (0, "q"), (1, "q"), (1, "NA"), (1, "r")])
    how = Splitting("order", validation=0, test=0.2)
    old = run(
        table_job(tmp_path / "old.csv", Columns("y", ("a",)), reading=Reading(missing=("", "NA")), splitting=how),
        tmp_path / "old",
    )
    write_csv(tmp_path / "new.csv", ("a", "y"), [("p", 1), ("r", 0), ("q", 1), ("NA", 0)])
    new = run(reuse_job(tmp_path / "old", tmp_path / "new.csv"), tmp_path / "new")
    assert new.splits == ("test",)
    assert new.schema == old.schema
    assert rows_of(new, "test") == [(1, [], [2]), (0, [], [0]), (1, [], [1]), (0, [], [3])]  # 3 is missing


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kaggle", "terabyte"])
def test_criteos_rows_prepared_again_are_the_same(tmp_path, kind):
    write_criteo_text(tmp_path / "day_0", 300)
    if kind == "kaggle":
        job = criteo_kaggle_job(tmp_path / "day_0")
    else:
        job = criteo_terabyte_job(tmp_path / "day_0", modulus=50, sample="negatives")
    old = run(job, tmp_path / "old")
    new = run(reuse_job(tmp_path / "old", tmp_path / "day_0"), tmp_path / "new")
    assert new.num_rows("test") == 300
    if kind == "kaggle":
        everything = [row for split in old.splits for row in rows_of(old, split)]
        assert rows_of(new, "test") == everything
    assert new.schema == old.schema


def test_ratings_of_another_format_are_understood(tmp_path):
    (tmp_path / "u.data").write_text("1\t5\t4\t1\n1\t6\t2\t2\n2\t5\t1\t3\n")
    (tmp_path / "ratings.dat").write_text("2::6::5::9\n7::5::1::9\n")
    run(replace(movielens_job(tmp_path / "u.data"), splitting=Splitting("order", 0, 0)), tmp_path / "old")
    new = run(reuse_job(tmp_path / "old", tmp_path / "ratings.dat"), tmp_path / "new")
    assert rows_of(new, "test") == [(1, [], [2, 2]), (0, [], [0, 1])]


def test_a_synthetic_data_set_has_no_raw_rows(tmp_path):
    prepare_synthetic(tmp_path / "x", SyntheticConfig(num_rows=200), progress=False)
    with pytest.raises(ValueError, match="must have been made from raw rows, got a synthetic data set"):
        reuse_job(tmp_path / "x", tmp_path / "raw")


def test_new_rows_need_no_label(tmp_path):
    write_csv(tmp_path / "old.csv", ("y", "a"), [(1, "p"), (0, "q"), (1, "q")])
    run(table_job(tmp_path / "old.csv", Columns("y", ("a",)), splitting=Splitting("order", 0, 0)), tmp_path / "old")
    write_csv(tmp_path / "new.csv", ("a",), [("p",), ("r",)])
    new = run(reuse_job(tmp_path / "old", tmp_path / "new.csv"), tmp_path / "new")  # which verifies it as well
    (batch,) = new.loader("test", batch_size=5, shuffle=False)
    assert (batch.ids.tolist(), batch.labels.isnan().all()) == ([[2], [0]], True)
    assert not new.has_labels
    with pytest.raises(ValueError, match=r"must have a column 'a'; it has b\.$"):
        reuse_job(tmp_path / "old", write_csv(tmp_path / "b.csv", ("b",), [("p",)]))


def test_lines_without_names_need_no_label(tmp_path):
    (tmp_path / "u.data").write_text("1\t5\t4\t1\n1\t6\t2\t2\n2\t5\t1\t3\n")
    run(replace(movielens_job(tmp_path / "u.data"), splitting=Splitting("order", 0, 0)), tmp_path / "old")
    (tmp_path / "ratings.dat").write_text("2::6::9\n7::5::9\n")
    new = run(reuse_job(tmp_path / "old", tmp_path / "ratings.dat"), tmp_path / "new")
    assert [ids for _, _, ids in rows_of(new, "test")] == [[2, 2], [0, 1]]
