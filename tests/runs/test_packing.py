"""What goes into a pack; packs themselves are in test_pack.py."""

import shutil

import pytest

from cce.runs.loaded import pack_run

pytestmark = pytest.mark.slow


def test_a_run_that_is_not_finished_is_packed_without_a_record(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "record.jsonl").unlink()
    pack = pack_run(tmp_path / "run", tmp_path / "one.ccez")
    assert sorted(pack.spans) == [
        *("inputs/000.safetensors", "inputs/001.safetensors", "inputs/002.safetensors", "inputs/inputs.json"),
        "model.safetensors",
    ]


def test_a_data_set_that_is_gone_or_another_is_rejected(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(FileNotFoundError, match=r"has its vocabularies in the data set '.*nowhere', got none there"):
        pack_run(tmp_path / "run", tmp_path / "one.ccez", data=tmp_path / "nowhere")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
