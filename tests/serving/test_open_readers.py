"""Everybody reads an open table alike, int8 rows or pointers: training, frozen, pt2, ONNX, NumPy, a saved model."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import cce
from cce.indexing import NO_ID, scramble
from cce.schema import Feature, Schema
from cce.serving import numpy_reader
from cce.serving.freezing import write_bundle
from cce.serving.program import example_inputs, run_onnx, trace, write_onnx
from helpers.final_form import finalize_table

DIM = 8
KNOWN = scramble(torch.arange(1, 701))
ASKED = torch.cat([KNOWN, torch.arange(-50, 50), torch.tensor([NO_ID, 2**63 - 1])])
SCHEMA = Schema((Feature("id", None),), ())


@cache
def model_of(form):
    model = nn.Sequential(cce.create_embedding("cce", None, DIM, seed=0))
    optimizer = cce.optim.Adam(model, lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        goal = torch.randn(len(KNOWN), DIM, generator=torch.Generator().manual_seed(step))
        (model(KNOWN) - goal).square().sum().backward()
        optimizer.step()
    if form == "pointers":
        finalize_table(model[0], num_columns=4, num_rows=64)
    return model


@pytest.fixture(params=["int8 rows", "pointers"])
def model(request):
    return model_of(request.param)


def expected(model):
    vectors = model(ASKED).detach()
    assert vectors[: len(KNOWN)].abs().sum(1).gt(0).all()
    assert vectors[len(KNOWN) :].eq(0).all()
    return vectors


def test_frozen_tables_and_the_numpy_reader_read_the_vectors_of_training(model, tmp_path):
    frozen, vectors = cce.freeze(model), expected(model)
    assert torch.equal(frozen(ASKED), vectors)
    assert torch.equal(frozen[0].embed(ASKED), vectors)
    write_bundle(tmp_path / "model.safetensors", frozen)
    table = numpy_reader.open_bundle(tmp_path / "model.safetensors")["0"]
    np.testing.assert_array_equal(table.vectors(ASKED.numpy()), vectors.numpy())
    np.testing.assert_array_equal(table.vectors(ASKED.numpy().view(np.uint64)), vectors.numpy())


class Program(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, inputs):
        return self.table(inputs["ids"].squeeze(1))


@pytest.mark.slow
def test_exported_programs_read_them(model, tmp_path):
    vectors, program = expected(model), trace(Program(cce.freeze(model)[0]), SCHEMA)
    torch.export.save(program, tmp_path / "model.pt2")
    inputs = {"ids": ASKED.unsqueeze(1)}
    assert torch.equal(torch.export.load(tmp_path / "model.pt2").module()(inputs), vectors)
    pytest.importorskip("onnxruntime")
    write_onnx(tmp_path / "model.onnx", program, example_inputs(SCHEMA))
    assert torch.equal(run_onnx(tmp_path / "model.onnx")(inputs), vectors)


def test_a_saved_model_is_loaded_into_the_code_that_it_was_made_of(model, tmp_path):
    cce.save(model, tmp_path / "model.safetensors")
    loaded = cce.load(tmp_path / "model.safetensors", into=nn.Sequential(nn.Embedding(10, DIM)))
    assert torch.equal(loaded(ASKED), expected(model))
    with pytest.raises(ValueError, match=r"'0' of into must be a table of any ids × 8, as in .*, got 10 × 4"):
        cce.load(tmp_path / "model.safetensors", into=nn.Sequential(nn.Embedding(10, 4)))


def test_tables_of_any_model_are_opened_by_name():
    model = nn.ModuleDict({"user": nn.Embedding(5000, DIM), "item": nn.Embedding(5000, DIM)})
    plan = cce.compress(model, open="user", min_count=2)
    assert [table.num_embeddings for table in plan.tables] == [5000, 0]
    assert (model["item"].num_embeddings, model["user"].num_embeddings) == (5000, None)
    assert model["user"](torch.tensor([-7])).eq(0).all()
    with pytest.raises(ValueError, match=r"open must match tables of the model \(user, item\), got 'ad'"):
        cce.compress(nn.ModuleDict({"user": nn.Embedding(5000, DIM), "item": nn.Embedding(5000, DIM)}), open="ad")
