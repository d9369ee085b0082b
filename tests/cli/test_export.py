"""`cce export` as it is typed: from raw rows to a program that runs without cce."""

import json
import subprocess
import sys

import numpy as np
import pytest

import cce
from cce.cli import main
from cce.serving import numpy_reader
from cce.training import Trainer
from helpers.files import small_files
from helpers.raw_runs import held_out_rows, train_on_raw
from helpers.runs import tiny_config, tiny_data

pytestmark = pytest.mark.slow

# what a service does with an export: raw values to ids by the file that comes with it, and onnxruntime
SERVICE = """
import json, sys
for name in ("torch", "cce", "safetensors"):
    sys.modules[name] = None
folder = sys.argv[1]
sys.path.insert(0, folder)
import numpy as np, onnxruntime, numpy_reader
told = json.load(open(folder + "/export.json"))
rows = json.load(sys.stdin)
inputs = {"dense": np.array(rows["dense"], np.float32)}
for name, values in rows["values"].items():
    ids = numpy_reader.open_vocabulary(folder + "/" + told["vocabularies"][name]).find(sum(values, []))
    inputs["ids." + name] = ids
    if "offsets." + name in told["inputs"]:
        lengths = [len(bag) for bag in values]
        inputs["offsets." + name] = np.cumsum([0, *lengths[:-1]]).astype(np.int64)
session = onnxruntime.InferenceSession(folder + "/" + told["file"], providers=["CPUExecutionProvider"])
logits = session.run([told["output"]], {each.name: inputs[each.name] for each in session.get_inputs()})[0]
print(json.dumps((1 / (1 + np.exp(-logits))).tolist()))
"""


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    train_on_raw(folder)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run on synthetic clicks, whose ids never were anything else."""
    folder = tmp_path_factory.mktemp("plain")
    Trainer(tiny_config(tiny_data(folder / "data"), max_steps=9, epochs=1), folder / "run").run()
    return folder


def test_raw_rows_are_predicted_without_cce_as_by_the_run(raw, capsys):
    pytest.importorskip("onnxruntime")
    command = ["export", str(raw / "run"), str(raw / "out"), "--format", "onnx"]
    assert main([*command, "--verify", str(raw / "data")]) == 0
    told = capsys.readouterr()
    assert "verified: largest difference of a logit" in told.out
    assert told.out.startswith("onnx: ")
    assert told.err == ""
    rows = held_out_rows()[:20]
    batch = next(
        iter(cce.load_run(raw / "run").inputs.encoder(cce.load_run(raw / "run").schema).batches(rows, batch_size=20))
    )
    values = {
        "user": [[row["user"]] for row in rows],
        "item": [[row["item"]] for row in rows],
        "tags": [[tag for tag in row["tags"].split("|") if tag] for row in rows],
    }
    given = json.dumps({"dense": batch.dense.tolist(), "values": values})
    run = [sys.executable, "-I", "-c", SERVICE, str(raw / "out")]
    result = subprocess.run(run, input=given, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    expected = cce.load_run(raw / "run").predict(rows)
    np.testing.assert_allclose(json.loads(result.stdout), expected, atol=1e-5)


def test_tables_are_exported_and_verified(plain, capsys, tmp_path):
    command = ["export", str(plain / "run"), str(tmp_path / "out"), "--verify", str(plain / "data")]
    assert main([*command, "--json"]) == 0
    told = capsys.readouterr()
    made = json.loads(told.out)
    assert made["verification"]["difference"] <= 1e-5
    assert made["path"] == str(tmp_path / "out")
    assert told.err.startswith("cce export: no vocabularies, so inputs are ids: ")


def test_bad_input_is_one_line_and_leaves_nothing(plain, capsys, tmp_path):
    assert main(["export", str(plain / "run"), str(tmp_path / "out"), "--verify", "nowhere"]) == 2
    line = "cce export: nowhere must be a data set made by `cce prepare`, got no manifest.json there."
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert list(tmp_path.iterdir()) == []


def test_a_failed_verification_and_a_full_disk_leave_nothing(plain, capsys, tmp_path, monkeypatch):
    command = ["export", str(plain / "run"), str(tmp_path / "out")]
    monkeypatch.setattr(
        numpy_reader.Table, "vectors", lambda table, ids: np.ones((*ids.shape, table.embedding_dim), "f")
    )
    assert main([*command, "--verify", str(plain / "data")]) == 2
    assert capsys.readouterr().err.startswith(
        "cce export: verification failed: tolerance is 0.0001, got largest difference"
    )
    with small_files(1000):
        assert main(command) == 2
    assert "File too large" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_delta_takes_an_export_of_tables_and_nothing_else(plain, capsys, tmp_path):
    run, out = str(plain / "run"), str(tmp_path / "out")
    assert main(["export", run, out]) == 0
    assert main(["export", run, "--since", out]) == 0
    assert capsys.readouterr().out.endswith("nothing has changed\n")
    wrong = {
        "give one of OUT and --since, got both": [out, "--since", out],
        "give one of OUT and --since, got neither": [],
        "--format does not go with --since, got 'onnx'": ["--since", out, "--format", "onnx"],
        f"since must be the folder of an export with model.safetensors, got '{plain}'": ["--since", str(plain)],
    }
    for line, words in wrong.items():
        assert main(["export", run, *words]) == 2
        assert capsys.readouterr().err == f"cce export: {line}.\n"


def test_a_service_applies_deltas_without_torch_and_cce(plain, capsys, tmp_path):
    model = cce.load_run(plain / "run").model
    assert main(["export", str(plain / "run"), str(tmp_path / "out")]) == 0
    parameter = next(model.parameters())
    parameter.data.add_(1)
    path = cce.delta(model, since=tmp_path / "out").path
    code = """
import sys
for name in ("torch", "cce", "safetensors"):
    sys.modules[name] = None
folder = sys.argv[1]
sys.path.insert(0, folder)
import numpy_deltas, numpy_reader
bundle = numpy_reader.open_bundle(folder + "/model.safetensors.old")
numpy_deltas.apply_delta(bundle, sys.argv[2])
print(bundle.state.version.number)
try:
    numpy_deltas.apply_delta(bundle, sys.argv[2])
except ValueError as error:
    print(error)
"""
    assert main(["export", str(plain / "run"), str(tmp_path / "old")]) == 0
    (tmp_path / "old" / "model.safetensors").rename(tmp_path / "out" / "model.safetensors.old")
    command = [sys.executable, "-I", "-c", code, str(tmp_path / "out"), str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.stdout == f"1\n{path} must be delta 2, got delta 1: that one was applied before.\n", result.stderr
