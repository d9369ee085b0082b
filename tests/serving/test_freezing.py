"""`cce.freeze`: the same model, smaller, and the trained one as it was."""

import pytest
import torch
from torch import nn

import cce
from cce.serving import freeze_table, write_bundle
from cce.serving.collection import FrozenCollection
from helpers.final_form import finalize_table
from helpers.frozen import NUM_IDS, make_batch, make_model, make_schema, make_table


@pytest.mark.parametrize("multi_hot", [False, True])
def test_a_frozen_model_gives_the_same_logits_and_leaves_the_trained_one_alone(multi_hot):
    schema = make_schema(multi_hot=multi_hot)
    model = make_model(schema)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    frozen = cce.freeze(model.train())
    batch = make_batch(schema, 50)
    torch.testing.assert_close(frozen(batch), model.eval()(batch), rtol=0, atol=1e-6)
    assert isinstance(frozen.tables, FrozenCollection)
    assert isinstance(model.tables, cce.EmbeddingCollection)
    assert not frozen.training
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_pointers_take_four_bits_where_there_are_sixteen_rows():
    table = cce.embeddings.CCEEmbedding(1_001, 8, num_rows=16, num_columns=4, counts=torch.full((1_001,), 2))
    finalize_table(table)
    frozen = freeze_table(table)
    assert frozen.spec()["groups"][0]["bits"] == 4
    assert frozen.tensors()["groups.0.words"].nbytes == table.pointers.store.nbytes < 1_001 * 2 + 8


def test_helper_tables_of_zeros_are_left_out():
    table = make_table("cce-paper", {})
    with torch.no_grad():
        table.tables[:, 1:] = 0
    frozen = freeze_table(table)
    assert torch.equal(frozen(torch.arange(NUM_IDS)), table.to_dense())
    assert len(frozen.rows.values) == len(table.codebook) // 2


@pytest.mark.parametrize("unseen", ["neutral", "trained"])
def test_int8_rows_without_a_row_are_frozen(unseen):
    table = cce.embeddings.CCEEmbedding(100, 8, unseen=unseen)
    assert torch.equal(freeze_table(table)(torch.arange(100)), torch.zeros(100, 8))
    assert torch.equal(freeze_table(table).embed(torch.arange(100)), torch.zeros(100, 8))


@pytest.mark.parametrize("bits", [4, 8])
def test_codes_of_any_width_give_the_same_vectors(bits):
    table = cce.embeddings.QuantizedEmbedding(100, 5, bits=bits)
    ids = torch.arange(100)
    assert torch.equal(freeze_table(table)(ids), table.to_dense(ids))


def test_tables_by_themselves_and_in_bags_are_frozen_where_they_are():
    table = make_table("cce", {})
    model = nn.ModuleDict({"one": table, "same": table, "bag": cce.embeddings.EmbeddingBag(table, mode="mean")})
    frozen = cce.freeze(model)
    assert frozen["one"] is frozen["same"] is frozen["bag"].table
    ids = torch.arange(12)
    assert torch.equal(frozen["one"](ids), table(ids))
    assert torch.equal(frozen["bag"](ids.view(3, 4)), model["bag"](ids.view(3, 4)))
    assert torch.equal(cce.freeze(table)(ids), table(ids))
    assert torch.equal(cce.freeze(make_collection())(ids.view(6, 2)), make_collection()(ids.view(6, 2)))


def make_collection(**options):
    return cce.EmbeddingCollection({"a": 100, "b": 50}, 8, cap=80, seed=0, **options)


def test_a_bundle_of_a_model_that_is_not_frozen_is_rejected_and_not_written(tmp_path):
    with pytest.raises(
        TypeError, match=r"^model must be a frozen model, got Linear without frozen tables: freeze it\.$"
    ):
        write_bundle(tmp_path / "model.safetensors", torch.nn.Linear(1, 1))
    assert list(tmp_path.iterdir()) == []
