"""Criteo's Kaggle challenge: the last day held out, and every number as plain Python would have it."""

import gzip
from dataclasses import replace

import pytest
from benchmarks.criteo_text import write_criteo_text

from cce.data.preparation.job import Splitting, VocabularyRule
from cce.data.sources.criteo import criteo_kaggle_job
from helpers.raw_files import criteo_lines, encoded_criteo, rows_of, run

NUM_ROWS = 1400


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kaggle")
    write_criteo_text(folder / "train.txt", NUM_ROWS)
    return folder


def assert_rows(found, expected):
    assert len(found) == len(expected)
    for (label, dense, ids), (label_, dense_, ids_) in zip(found, expected, strict=True):
        assert (label, ids) == (label_, ids_)
        assert dense == pytest.approx(dense_, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [{}, {"min_count": 3}])
@pytest.mark.parametrize("block_bytes", [1 << 25, 40_000])
def test_a_preparation_is_what_plain_python_would_do(raw, tmp_path, rule, block_bytes):
    job = replace(criteo_kaggle_job(raw), rule=VocabularyRule(**rule), block_bytes=block_bytes)
    data = run(job, tmp_path / "out")
    expected = encoded_criteo(criteo_lines(raw / "train.txt"), 1200, **rule)
    assert_rows(rows_of(data, "train"), expected[:1200])
    assert_rows(rows_of(data, "validation"), expected[1200:1300])
    assert_rows(rows_of(data, "test"), expected[1300:])
    sizes = [1 + max(row[2][f] for row in expected[:1200]) for f in range(26)]
    assert list(data.schema.vocabulary_sizes.values()) == sizes
    assert data.schema.dense == tuple(f"I{n}" for n in range(1, 14))


@pytest.mark.slow
def test_a_vocabulary_of_all_rows_knows_every_value(raw, tmp_path):
    data = run(replace(criteo_kaggle_job(raw), rule=VocabularyRule(source="all")), tmp_path / "out")
    expected = encoded_criteo(criteo_lines(raw / "train.txt"), NUM_ROWS)
    assert_rows(rows_of(data, "test"), expected[1300:])


@pytest.mark.slow
def test_a_random_split_and_gzip(raw, tmp_path):
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress((raw / "train.txt").read_bytes()))
    data = run(replace(criteo_kaggle_job(tmp_path), splitting=Splitting("random", 0.2, 0.2)), tmp_path / "out")
    assert sum(data.num_rows(split) for split in data.splits) == NUM_ROWS
    assert data.num_rows("test") == pytest.approx(280, abs=60)


@pytest.mark.slow
def test_counts_of_missing_and_negative_numbers_are_told(raw, tmp_path):
    data = run(criteo_kaggle_job(raw), tmp_path / "out")
    lines = criteo_lines(raw / "train.txt")
    for index in range(13):
        column = [line[1 + index] for line in lines]
        told = {"missing": column.count(""), "negative": sum(x.startswith("-") for x in column)}
        assert data.manifest["dense"][f"I{index + 1}"] == told
