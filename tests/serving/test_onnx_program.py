"""ONNX: whole models in onnxruntime, in processes that have neither cce nor torch."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import cce
from cce.serving.program import ServedModel, example_inputs, make_inputs, run_onnx, trace, write_onnx
from helpers.frozen import make_batch, make_model, make_schema

ALONE = """
import json, sys
for name in ("torch", "cce"):
    sys.modules[name] = None
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
inputs = numpy.load(sys.argv[2])
print(json.dumps(session.run(["logits"], {each.name: inputs[each.name] for each in session.get_inputs()})[0].tolist()))
"""


@pytest.mark.slow
def test_a_model_runs_in_onnxruntime_without_cce(tmp_path):
    pytest.importorskip("onnxruntime")
    schema = make_schema(multi_hot=False)  # bags of ids: tests/cli/test_export.py
    frozen = cce.freeze(make_model(schema))
    path = tmp_path / "model.onnx"
    write_onnx(path, trace(ServedModel(frozen, schema), schema), example_inputs(schema))
    assert b"/frozen.py" not in path.read_bytes()  # no paths of the machine that wrote it
    for num_rows in (1, 300):
        batch = make_batch(schema, num_rows, seed=num_rows)
        inputs = make_inputs(batch, schema)
        torch.testing.assert_close(run_onnx(path)(inputs), frozen(batch), rtol=0, atol=1e-5)
    np.savez(tmp_path / "inputs.npz", **{name: tensor.numpy() for name, tensor in inputs.items()})
    command = [sys.executable, "-I", "-c", ALONE, str(path), str(tmp_path / "inputs.npz")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    torch.testing.assert_close(torch.tensor(json.loads(result.stdout)), frozen(batch), rtol=0, atol=1e-5)


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ValueError, match=r"format 'onnx' needs onnxruntime: pip install 'clustered-embeddings\[export"):
        run_onnx(tmp_path / "model.onnx")
