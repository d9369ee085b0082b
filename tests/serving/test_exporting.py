"""Exports as folders: whole, verified, run without cce, or not there at all."""

import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import cce
from cce.data import PreparedData, Vocabulary
from cce.hashing import Texts
from cce.serving import export_model, freezing, numpy_reader
from cce.serving.program import make_inputs
from helpers.frozen import finalized, make_batch, make_model, make_schema
from helpers.runs import tiny_data

ALONE = """
import json, shutil, sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "cce":
            raise ImportError("cce is not here")
sys.meta_path.insert(0, Refused())
import torch
folder = sys.argv[1]
inputs = torch.load(folder + "/inputs.pt")
program = torch.export.load(folder + "/out/model.pt2")
answers = [program.module()(inputs).tolist()]
if shutil.which("g++"):
    torch._inductor.aoti_compile_and_package(program, package_path=folder + "/compiled.pt2")
    answers.append(torch._inductor.aoti_load_package(folder + "/compiled.pt2")(inputs).tolist())
print(json.dumps(answers))
"""


@pytest.mark.slow
def test_a_program_of_torch_export_runs_where_cce_is_not_and_compiled_ahead_of_time(tmp_path):
    schema = cce.schema.Schema((cce.schema.Feature("user", 600), cce.schema.Feature("item", 20, multi_hot=True)))
    model = cce.models.GMF(
        schema, finalized(cce.EmbeddingCollection(schema.vocabulary_sizes, 16, cap=3_000, seed=0))
    ).eval()
    made = export_model(model, schema, tmp_path / "out", format="pt2")
    assert made.nbytes < made.table_nbytes + 80_000  # the graph is no larger than the tables of a small model
    some = make_batch(make_schema(multi_hot=True), 33)
    ids = torch.where(torch.arange(len(some.ids)) < 33, some.ids, some.ids % 20)  # those of 33 users come first
    batch = replace(some, dense=some.dense[:, :0], ids=ids)
    torch.save(make_inputs(batch, schema), tmp_path / "inputs.pt")
    alone = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-W", "ignore", "-c", ALONE, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=tmp_path, env=alone, check=False)
    assert result.returncode == 0, result.stderr
    answers = json.loads(result.stdout.splitlines()[-1])
    assert len(answers) == 1 + (shutil.which("g++") is not None)
    for answer in answers:
        torch.testing.assert_close(torch.tensor(answer), model(batch), rtol=0, atol=1e-5)


def test_a_folder_says_what_it_holds_and_turns_raw_values_into_ids(tmp_path):
    schema = make_schema(multi_hot=True)
    texts = [f"user {index}" for index in range(599)]
    known = {"user": Vocabulary.build("user", "words", Texts.of(texts))}
    raw = {"reading": {"log": True}}
    made = export_model(make_model(schema), schema, tmp_path / "out", vocabularies=known, raw=raw)
    files = {path.relative_to(made.path).as_posix() for path in made.path.rglob("*") if path.is_file()}
    readers = {"numpy_reader.py", "numpy_deltas.py"}
    assert files == {"model.safetensors", "export.json", *readers, "vocabulary/000.safetensors"}
    assert made.nbytes == sum((made.path / name).stat().st_size for name in files)
    told = json.loads((made.path / "export.json").read_text())
    assert told["inputs"]["ids.item"] == {"dtype": "int64", "shape": ["ids"]}
    assert told["inputs"]["dense"] == {"dtype": "float32", "shape": ["batch", 2]}
    assert (told["format"], told["file"]) == ("safetensors", "model.safetensors")
    assert told["raw"] == {"reading": {"log": True}}
    vocabulary = numpy_reader.open_vocabulary(made.path / told["vocabularies"]["user"])
    assert vocabulary.find(["user 0", "user 598", "nobody", ""]).tolist() == [1, 599, 0, 0]
    vectors = numpy_reader.open_bundle(made.path / told["file"])["user"].vectors(vocabulary.find(["user 7"]))
    assert np.abs(vectors).sum() > 0
    assert 0 < made.to_dict()["table_nbytes"] < made.nbytes


def test_a_model_in_training_is_exported_and_trains_on(tmp_path):
    data = PreparedData.open(tiny_data(tmp_path / "data"))
    model = cce.models.DLRM(
        data.schema, cce.EmbeddingCollection(data.schema.vocabulary_sizes, 8, cap=320, seed=0), dropout=0.5
    )
    trained = [parameter.requires_grad for parameter in model.parameters()]
    made = export_model(model, data.schema, tmp_path / "out", data=data)
    assert made.verification.difference <= 1e-5
    assert model.training
    assert [parameter.requires_grad for parameter in model.parameters()] == trained


def test_two_values_of_one_hash_are_told_apart_by_their_texts(tmp_path):
    vocabulary = Vocabulary.build("user", "words", Texts.of(["a", "b", "c"]))
    same = np.full(3, numpy_reader.fnv1a(b"b"), np.uint64)
    Vocabulary("user", "words", same, np.array([1, 2, 3], np.int32), vocabulary.texts).save(tmp_path / "v.safetensors")
    assert numpy_reader.open_vocabulary(tmp_path / "v.safetensors").find(["b", "a"]).tolist() == [2, 0]


def test_an_unknown_format_is_rejected_and_leaves_nothing(tmp_path):
    schema = make_schema(multi_hot=False)
    with pytest.raises(ValueError, match="format must be one of safetensors, pt2, onnx"):
        export_model(make_model(schema), schema, tmp_path / "out", format="tflite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["pt2", "onnx"])
def test_a_model_that_takes_no_batch_is_rejected_in_one_line_and_leaves_nothing(kind, tmp_path):
    class TakesIds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = cce.create_embedding("pq", 600, 8, num_params=800, seed=0)

        def forward(self, ids):
            return self.table(ids[:, 0]).sum(1)

    schema = make_schema(multi_hot=False)
    message = (
        r"^model must take a cce\.schema\.Batch of the schema and give logits \(3\) for 3 rows to be exported as a "
        r"program or verified, got TypeError: 'Batch' object is not subscriptable; format 'safetensors' holds the "
    )
    with pytest.raises(TypeError, match=message):
        export_model(TakesIds(), schema, tmp_path / "out", format=kind)
    assert list(tmp_path.iterdir()) == []
    assert export_model(TakesIds(), schema, tmp_path / "out").nbytes > 0


def test_a_folder_that_appears_meanwhile_is_left_as_it_is(tmp_path, monkeypatch):
    schema, whole, out = make_schema(multi_hot=False), freezing.save_file, tmp_path / "out"

    def write(tensors, path, metadata):
        whole(tensors, path, metadata)
        out.mkdir()
        (out / "notes.txt").touch()

    monkeypatch.setattr(freezing, "save_file", write)
    with pytest.raises(FileExistsError, match="out must not exist yet, got"):
        export_model(make_model(schema), schema, out)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "notes.txt"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    schema, whole = make_schema(multi_hot=False), freezing.save_file

    def write(tensors, path, metadata):
        whole(tensors, path, metadata)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(freezing, "save_file", write)
    with pytest.raises(OSError, match="No space left on device"):
        export_model(make_model(schema), schema, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
