"""Manifests: read, or rejected with the reason."""

import hashlib
import json

import pytest

from cce.data.record_format import FORMAT, checksum, read_manifest


def test_a_checksum_is_sha256(tmp_path):
    (tmp_path / "x").write_bytes(b"rows" * 100_000)
    assert checksum(tmp_path / "x") == hashlib.sha256(b"rows" * 100_000).hexdigest()


def test_a_folder_without_a_manifest_is_no_data_set(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"must be a data set made by `cce prepare`, got no manifest\.json there"
    ):
        read_manifest(tmp_path)


def test_a_manifest_of_another_format_is_rejected(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(ValueError, match=rf"manifest\.json must be as .*: format must be {FORMAT}, got {FORMAT + 1}"):
        read_manifest(tmp_path)
