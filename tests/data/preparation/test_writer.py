"""Writing a data set: whole or not at all, and one clear line if the disk is full."""

import hashlib
import json

import numpy as np
import pytest

from cce.data.record_format import create_files, seal, temporary_folder, write_at
from cce.schema import Feature, Schema

SCHEMA = Schema((Feature("a", 10),))


def test_numbers_go_to_their_place(tmp_path):
    create_files(tmp_path, SCHEMA, {"train": 5})
    assert (tmp_path / "train.rows").stat().st_size == 5 * 8
    write_at(tmp_path / "train.rows", 3, np.array([7, 8]))
    assert np.fromfile(tmp_path / "train.rows", np.int64).tolist() == [0, 0, 0, 7, 8]


def test_sealing_writes_checksums_and_renames(tmp_path):
    out = tmp_path / "out"
    create_files(temporary_folder(out), SCHEMA, {"train": 1, "test": 0})
    manifest = seal(temporary_folder(out), out, SCHEMA, {"kind": "x", "splits": {"train": 1, "test": 0}})
    assert not temporary_folder(out).exists()
    assert json.loads((out / "manifest.json").read_text()) == manifest
    assert manifest["files"]["train.rows"] == {"bytes": 8, "sha256": hashlib.sha256(bytes(8)).hexdigest()}
    assert set(manifest["files"]) == {"train.rows", "test.rows"}


def test_a_real_full_disk_is_told_by_the_name_of_the_file():
    from pathlib import Path

    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'$"):
        write_at(Path("/dev/full"), 0, np.zeros(1 << 20))
