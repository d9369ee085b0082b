"""Packs: one file that holds a run, checked when it is opened."""

import json
import shutil
import zipfile
from mmap import mmap

import numpy as np
import pytest

import cce
from cce.runs.loaded import pack_run
from cce.runs.pack import ALIGNMENT, Pack
from helpers.files import small_files
from helpers.raw_runs import held_out_rows
from helpers.runs import tiny_config, tiny_data

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def packed(trained, tmp_path_factory):
    """The bytes of a pack."""
    out = tmp_path_factory.mktemp("pack") / "one.ccez"
    pack_run(trained, out)
    return out.read_bytes()


def test_a_pack_alone_does_what_the_run_does(trained, packed, tmp_path):
    (tmp_path / "moved.ccez").write_bytes(packed)
    run, pack = cce.load_run(trained), cce.load_run(tmp_path / "moved.ccez")
    assert np.array_equal(pack.predict(held_out_rows()), run.predict(held_out_rows()))
    assert (pack.scores, pack.step, pack.schema, pack.options) == (run.scores, run.step, run.schema, run.options)
    assert pack.evaluate(trained.parent / "data").scores == run.scores
    hashes = pack.vocabularies["user"].hashes
    assert isinstance(hashes.base.base.base, mmap)
    assert hashes.flags.aligned
    assert all(start % ALIGNMENT == 0 for start, _ in Pack.open(tmp_path / "moved.ccez").spans.values())
    assert list(tmp_path.iterdir()) == [tmp_path / "moved.ccez"]


def test_every_damaged_byte_is_noticed(packed, tmp_path):
    path = tmp_path / "a.ccez"
    path.write_bytes(packed)
    pack = Pack.open(path)
    spans = list(pack.spans.values())
    spans.append((packed.index(b'{\n "format": "cce-pack"'), 900))  # the manifest itself
    places = [start + size * part // 9 for start, size in spans for part in range(9)]
    assert len(places) == 9 * 7
    for place in places:
        raw = bytearray(packed)
        raw[place] ^= 0x55
        path.write_bytes(raw)
        with pytest.raises(
            ValueError, match=r"a\.ccez must be a whole pack made by `cce pack`, got damage: "
        ) as caught:
            cce.load_run(path)
        assert "\n" not in str(caught.value)
    for length in (0, 10, len(packed) // 2, len(packed) - 1):
        path.write_bytes(packed[:length])
        with pytest.raises(ValueError, match=r"a\.ccez must be a whole pack made by `cce pack`, got damage: "):
            cce.load_run(path)


def changed(packed, path, **changes):
    """The pack with another manifest."""
    path.write_bytes(packed)
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("pack.json")) | changes
        others = {name: archive.read(name) for name in archive.namelist() if name != "pack.json"}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (others | {"pack.json": json.dumps(manifest)}).items():
            archive.writestr(name, content)
    return path


def test_foreign_and_newer_packs_are_rejected(packed, tmp_path):
    path = tmp_path / "a.ccez"
    assert cce.load_run(changed(packed, path)).step > 0  # as it was, but for padding
    with pytest.raises(
        ValueError, match=r"^version of the pack .*a\.ccez must be 1, got 2, made by cce .*: update cce\.$"
    ):
        cce.load_run(changed(packed, path, version=2))
    with pytest.raises(ValueError, match=r"must be a pack made by `cce pack`, got another format in pack\.json\.$"):
        cce.load_run(changed(packed, path, format="other"))
    with pytest.raises(ValueError, match=r"got damage: pack\.json is not as it was written\.$"):
        cce.load_run(changed(packed, path, step="one"))
    with pytest.raises(ValueError, match=r"got damage: .*nowhere"):
        cce.load_run(changed(packed, path, files={"nowhere": {"bytes": 1, "sha256": ""}}))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "y")
    with pytest.raises(ValueError, match=r"must be a pack made by `cce pack`, got an archive without pack\.json\.$"):
        cce.load_run(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.safetensors", "y" * 100)
        manifest = {"format": "cce-pack", "version": 1, "step": 1, "state": {}, "files": {"model.safetensors": {}}}
        archive.writestr("pack.json", json.dumps(manifest), zipfile.ZIP_STORED)
    with pytest.raises(ValueError, match=r"got damage: model\.safetensors is compressed\.$"):
        cce.load_run(path)


def with_manifest(packed, path, text, compression=zipfile.ZIP_STORED):
    """The pack with any text for a manifest."""
    path.write_bytes(packed)
    with zipfile.ZipFile(path) as archive:
        others = {name: archive.read(name) for name in archive.namelist() if name != "pack.json"}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in others.items():
            archive.writestr(name, content)
        archive.writestr("pack.json", text, compression)
    return path


def test_a_manifest_made_to_do_harm_is_rejected_before_it_does(packed, tmp_path):
    path = tmp_path / "a.ccez"
    damage = r"^.*a\.ccez must be a whole pack made by `cce pack`, got damage: "
    with pytest.raises(ValueError, match=damage + r"pack\.json is not JSON: maximum recursion depth"):
        cce.load_run(with_manifest(packed, path, '{"state": ' * 200_000))
    stored = r"pack\.json must be stored as it is, with at most 67,108,864 bytes\.$"
    with pytest.raises(ValueError, match=damage + stored):
        cce.load_run(with_manifest(packed, path, f"[{' ' * 70_000_000}]", zipfile.ZIP_DEFLATED))


def test_damage_is_blamed_on_the_file_of_the_pack_that_has_it(packed, tmp_path):
    path = tmp_path / "a.ccez"
    with pytest.raises(
        ValueError, match=r"^.*a\.ccez/pack\.json must hold the state of a run, with 'resolved' of type dict"
    ):
        cce.load_run(changed(packed, path, state={}))
    path.write_bytes(packed)
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("pack.json"))
        others = {name: archive.read(name) for name in archive.namelist()}
    for text, message in (
        (b"{}", r"^.*a\.ccez/inputs/inputs\.json must be as it was written, and it is damaged: 'format'"),
        (
            b'{"format": 2, "kind": "table"}',
            r"^options of .*a\.ccez/inputs/inputs\.json must be as `cce prepare` wrote",
        ),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (others | {"inputs/inputs.json": text, "pack.json": json.dumps(manifest)}).items():
                archive.writestr(name, content)
        with pytest.raises(ValueError, match=message):
            cce.load_run(path).inputs  # noqa: B018


def test_a_record_that_is_none_is_named(packed, tmp_path):
    path = tmp_path / "a.ccez"
    path.write_bytes(packed)
    with zipfile.ZipFile(path) as archive:
        others = {name: archive.read(name) for name in archive.namelist()} | {"record.jsonl": b"{}"}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in others.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"^record\.jsonl of .*a\.ccez must hold the record of a run: "):
        cce.load_run(path)


def test_a_full_disk_leaves_the_old_pack_and_nothing_else(trained, tmp_path):
    (tmp_path / "one.ccez").write_text("old")
    with small_files(5000), pytest.raises(OSError, match="File too large"):
        pack_run(trained, tmp_path / "one.ccez")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"one.ccez": "old"}


def test_what_cannot_be_packed_is_rejected(trained, packed, tmp_path):
    (tmp_path / "one.ccez").write_bytes(packed)
    with pytest.raises(ValueError, match=r"^path must be the folder of a run, got the file '.*one\.ccez'\.$"):
        pack_run(tmp_path / "one.ccez", tmp_path / "two.ccez")
    with pytest.raises(IsADirectoryError, match=r"^out must be a file, got the folder"):
        pack_run(trained, tmp_path)
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / cce.load_run(trained).path.name / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"^path must be a run whose last and best checkpoints are whole: .*damaged\.$"
    ):
        pack_run(tmp_path / "run", tmp_path / "two.ccez")
    assert not (tmp_path / "two.ccez").exists()


def test_the_pack_of_a_synthetic_run_has_no_vocabularies(tmp_path):
    cce.training.Trainer(tiny_config(tiny_data(tmp_path / "data"), max_steps=2, epochs=1), tmp_path / "run").run()
    assert not pack_run(tmp_path / "run", tmp_path / "one.ccez").has_inputs
    run = cce.load_run(tmp_path / "one.ccez")
    assert run.evaluate(tmp_path / "data").num_rows == 100
    with pytest.raises(
        ValueError, match=r"one\.ccez has no vocabularies, as its data set had none: it predicts no raw"
    ):
        run.predict([])
