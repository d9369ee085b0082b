"""The reader in NumPy: the same vectors as the trained tables, from a file, without torch."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import cce
from cce.indexing import Assignments, LearnedRows, PointerStore
from cce.kernels import Layout
from cce.serving import freeze, numpy_reader
from cce.serving.freezing import freeze_table, write_bundle
from cce.serving.frozen_tables import FrozenRows, StoredRows
from helpers.frozen import LINEAR, NUM_IDS, make_batch, make_model, make_schema, make_table


def bundle_of(model, path):
    write_bundle(path, model)
    return numpy_reader.open_bundle(path)


@pytest.mark.parametrize(("method", "options"), LINEAR, ids=str)
def test_vectors_of_linear_tables_are_equal_to_the_bit(method, options, tmp_path):
    table = make_table(method, options)
    reader = bundle_of(freeze_table(table), tmp_path / "table.safetensors")
    got = reader["table"].vectors(np.arange(NUM_IDS))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, table.to_dense().numpy())


def test_a_bundle_is_a_safetensors_file_with_all_weights_of_the_model(tmp_path):
    schema = make_schema(multi_hot=False)
    frozen = freeze(make_model(schema))
    reader = bundle_of(frozen, tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        names = {name for name in file.keys() if name.startswith("model/")}  # noqa: SIM118  not a dictionary
        weight = file.get_tensor("model/bottom.0.weight")
    assert names == {f"model/{name}" for name in frozen.state_dict() if not name.startswith("tables.")}
    torch.testing.assert_close(weight, frozen.bottom[0].weight)
    np.testing.assert_array_equal(reader.weights["bottom.0.weight"], weight.numpy())
    batch = make_batch(schema, 5)
    vectors = [reader[name].vectors(batch.ids[:, place]) for place, name in enumerate(("user", "item"))]
    np.testing.assert_array_equal(np.stack(vectors, 1), frozen.tables(batch.ids).numpy())


@pytest.mark.slow
def test_a_hundred_million_ids_open_in_milliseconds(tmp_path):
    pointers = PointerStore(100_000_000, 2, 16)  # 100 MB of 4-bit pointers, all 0
    layout = Layout(100_000_000, 2, 1, 2, 32, [LearnedRows(Assignments.of(pointers), (0, 1), (0, 16))])
    rows = StoredRows(torch.arange(64.0).view(32, 2))
    write_bundle(tmp_path / "large.safetensors", FrozenRows(rows, layout))
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        table = numpy_reader.open_bundle(tmp_path / "large.safetensors")["table"]
        table.vectors([0, 99_999_999])
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.05
    np.testing.assert_array_equal(table.vectors(99_999_999), [0, 1, 32, 33])


@pytest.mark.slow
def test_the_file_runs_alone_where_there_is_neither_torch_nor_cce(tmp_path):
    table = make_table("cce", {})
    write_bundle(tmp_path / "table.safetensors", freeze_table(table))
    (tmp_path / "reader.py").write_text(Path(numpy_reader.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    code = """
import sys
for name in ("torch", "cce", "safetensors"):
    sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
import json, reader
bundle = reader.open_bundle(sys.argv[1] + "/table.safetensors")
print(json.dumps(bundle["table"].vectors([0, 7, 599]).tolist()))
"""
    command = [sys.executable, "-I", "-c", code, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == table.to_dense(torch.tensor([0, 7, 599])).tolist()


@pytest.mark.slow
def test_a_file_that_is_replaced_is_read_as_the_old_one_or_the_new_one(tmp_path):
    path, contents = tmp_path / "table.safetensors", []
    for num_ids in (5, 500):
        table = cce.create_embedding("full", num_ids, 4)
        table.codebook.data.fill_(num_ids)
        write_bundle(path, freeze(table))
        contents.append(path.read_bytes())
    is_done = threading.Event()

    def replace():
        while not is_done.is_set():
            for content in contents:
                (tmp_path / "next").write_bytes(content)
                (tmp_path / "next").replace(path)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(300):
            table = numpy_reader.open_bundle(path).tables["table"]
            assert table.vectors([0, 4]).max() == table.num_embeddings
    finally:
        is_done.set()
        thread.join()


def test_bad_ids_and_files_are_rejected(tmp_path):
    reader = bundle_of(freeze_table(make_table("pq", {})), tmp_path / "table.safetensors")
    with pytest.raises(TypeError, match="ids must be integers, got float64"):
        reader["table"].vectors([0.5])
    with pytest.raises(KeyError, match="'user' must name one table; the tables are table"):
        reader["user"]
    content = (tmp_path / "table.safetensors").read_bytes()
    for damaged in (content[:-1], content[:50], b"", b"\xff" * 16):
        (tmp_path / "bad.safetensors").write_bytes(damaged)
        with pytest.raises(ValueError, match="must be a whole safetensors file"):
            numpy_reader.open_bundle(tmp_path / "bad.safetensors")
    (tmp_path / "other.safetensors").write_bytes(content.replace(b"cce-bundle", b"of-another"))
    with pytest.raises(ValueError, match="must be a cce-bundle of version 1, got 'of-another'"):
        numpy_reader.open_bundle(tmp_path / "other.safetensors")
