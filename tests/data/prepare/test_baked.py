"""Baked rows: the same rows in the same order, with words in place of ids; in bags as well."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from cce.cli import main
from cce.data import MANIFEST, PreparedData, checksum, prepare_baked
from cce.schema import Pointers, Schema
from helpers.raw_files import write_csv
from helpers.raw_runs import COLUMNS, HEADER, raw_rows

pytestmark = pytest.mark.slow
POINTERS = {"user": Pointers(4, 2, 600, "u"), "tags": Pointers(2, 1, 7, "t")}  # words of 4 and 8 bytes; of one


def find_words(index, ids):
    """Anything that differs from column to column and id to id."""
    ids = ids.astype(np.int64)
    return {0: np.stack([ids * 3, ids * 2**50 + 1], 1), 1: ids[:, None], 2: ids[:, None] * 5}[index]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bake")
    write_csv(folder / "raw.csv", HEADER, [tuple(row.values()) for row in raw_rows(200)])
    words = ["table", str(folder / "raw.csv"), str(folder / "data"), *COLUMNS, "--weight", "weight", "--split", "order"]
    assert main(["prepare", *words, "--json"]) == 0
    return PreparedData.open(folder / "data")


@pytest.fixture
def schema(data):
    return replace(
        data.schema, features=tuple(replace(each, pointers=POINTERS.get(each.name)) for each in data.schema.features)
    )


def test_rows_hold_words_where_they_held_ids_and_all_else_is_as_it_was(data, schema, tmp_path):
    about = {"step": 5, "sha256": "x"}
    manifest = prepare_baked(data, tmp_path / "baked", schema, find_words, run=about, progress=False)
    baked = PreparedData.open(tmp_path / "baked")
    assert baked.schema == schema == Schema.from_dict(manifest["schema"])
    assert (manifest["kind"], manifest["run"], manifest["data"]) == ("baked", about, checksum(data.path / MANIFEST))
    baked.verify()
    for split in data.splits:
        old, new = (each.rows(split).fetch(np.arange(data.num_rows(split))) for each in (data, baked))
        for name in ("dense", "labels", "weights"):
            assert getattr(new, name).equal(getattr(old, name))
        users, items, tags, size = *(old.ids[b:e] for b, e in _bounds(old, 3)), len(old)
        expected = [users * 3, users * 2**50 + 1, items, tags * 5]
        assert [new.ids[b:e].tolist() for b, e in _bounds(new, 4)] == [each.tolist() for each in expected]
        assert (new.offsets[3 * size :] - new.offsets[3 * size]).equal(old.offsets[2 * size :] - old.offsets[2 * size])


def _bounds(batch, num_columns):
    ends = batch.offsets[:: len(batch)].tolist()
    assert len(ends) == num_columns + 1
    return list(pairwise(ends))


def test_a_failure_leaves_nothing_behind(data, schema, tmp_path):
    def fail(index, ids):
        raise ValueError("no words")

    with pytest.raises(ValueError, match="no words"):
        prepare_baked(data, tmp_path / "baked", schema, fail, run={}, progress=False)
    assert not list(tmp_path.iterdir())
    (tmp_path / "baked").mkdir()
    with pytest.raises(FileExistsError, match="must not exist already"):
        prepare_baked(data, tmp_path / "baked", schema, find_words, run={}, progress=False)
