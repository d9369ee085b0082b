"""`cce.freeze`: the same model, smaller, and the trained one as it was."""

import pytest
import torch
from torch import nn

import cce
from cce.serving import freeze_table
from cce.serving.collection import FrozenCollection
from helpers.frozen import make_batch, make_model, make_schema, make_table


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
    table = cce.CCEEmbedding(1_001, 8, num_rows=16, num_columns=4, counts=torch.full((1_001,), 2))
    table.finalize()
    packed, wide = freeze_table(table), freeze_table(table, pointers="bytes")
    assert [frozen.spec()["groups"][0]["bits"] for frozen in (packed, wide)] == [4, 8]
    assert [frozen.tensors()["groups.0.words"].nbytes for frozen in (packed, wide)] == [1_001 * 2, 1_001 * 4]
    assert torch.equal(packed(torch.arange(1_001)), wide(torch.arange(1_001)))


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_codes_of_any_width_give_the_same_vectors(bits):
    table = cce.QuantizedEmbedding(100, 5, bits=bits, num_learned=60, num_shared=7)
    ids = torch.arange(100)
    assert torch.equal(freeze_table(table)(ids), table.to_dense(ids))


def test_sizes_before_and_after_are_told():
    frozen = cce.freeze(make_model(make_schema(multi_hot=False)), codebook="int8")
    sizes = frozen.freezing
    names = [size.name for size in sizes.tables]
    assert names == ["tables.tables.user", "tables.tables.item"]
    assert sizes.after == sum(table.nbytes for table in frozen.tables.tables.values()) < sizes.before
    assert f"{sizes.before:,}" in str(sizes).splitlines()[-1]


def test_tables_by_themselves_and_in_bags_are_frozen_where_they_are():
    table = make_table("cce", {})
    model = nn.ModuleDict({"one": table, "same": table, "bag": cce.EmbeddingBag(table, mode="mean")})
    frozen = cce.freeze(model)
    assert frozen["one"] is frozen["same"] is frozen["bag"].table
    ids = torch.arange(12)
    assert torch.equal(frozen["one"](ids), table(ids))
    assert torch.equal(frozen["bag"](ids.view(3, 4)), model["bag"](ids.view(3, 4)))
    assert torch.equal(cce.freeze(table)(ids), table(ids))
    assert torch.equal(cce.freeze(make_collection())(ids.view(6, 2)), make_collection()(ids.view(6, 2)))


def make_collection(**options):
    return cce.EmbeddingCollection({"a": 100, "b": 50}, 8, cap=80, seed=0, **options)


def test_what_cannot_be_frozen_says_why():
    class Mine(cce.Embedding):
        method = "mine"

        def embed(self, ids):
            return ids

        fit_to = size_for_budget = shapes = init_parameters = None

    with pytest.raises(TypeError, match="a table of class Mine cannot be frozen: it is neither linear nor a method"):
        freeze_table(Mine(4, 2))
    with pytest.raises(ValueError, match="model must have tables of cce to freeze, got Linear without any"):
        cce.freeze(nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module"):
        cce.freeze(None)
    for name, value in (("codebook", "int4"), ("pointers", "wide")):
        with pytest.raises(ValueError, match=f"{name} must be one of"):
            cce.freeze(make_collection(), **{name: value})


def test_a_model_without_tables_is_rejected():
    with pytest.raises(ValueError, match=r"model must have tables of cce to freeze, got Linear without any\."):
        cce.freeze(nn.Linear(2, 2))
