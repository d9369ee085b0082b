"""Traced programs: every method and every model, one-hot and with bags, for any number of rows."""

import pytest
import torch

import cce
from cce.models import MODELS
from cce.schema import Batch, Feature, Schema
from cce.serving.program import ServedModel, example_inputs, make_inputs, trace
from helpers.frozen import FORMS, finalized, make_batch, make_model, make_schema


@pytest.mark.slow
@pytest.mark.parametrize("method", FORMS)
def test_a_traced_model_says_what_the_frozen_one_says_for_any_number_of_rows(method):
    schema = make_schema(multi_hot=method in ("cce", "full", "tt"))
    frozen = cce.freeze(make_model(schema, method=method))
    program = trace(ServedModel(frozen, schema), schema)
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    ours = {call for call in calls if isinstance(call, torch._ops.OpOverload) and call.namespace != "aten"}
    assert len(calls) > 20
    assert ours == set()
    assert torch.ops.aten._local_scalar_dense.default not in calls  # nothing waits for a value, as `.item()` does
    for num_rows in (1, 2, 50):
        batch = make_batch(schema, num_rows, seed=num_rows)
        got = program.module()(make_inputs(batch, schema))
        torch.testing.assert_close(got, frozen(batch), rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_traced(name):
    schema = Schema((Feature("user", 600), Feature("item", 300)), () if name == "gmf" else ("age", "price"))
    tables = finalized(cce.EmbeddingCollection(schema.vocabulary_sizes, 16, cap=3_000, seed=0))
    frozen = cce.freeze(cce.models.create_model(name, schema, tables))
    program = trace(ServedModel(frozen, schema), schema)
    some = make_batch(make_schema(multi_hot=False), 7)
    batch = Batch(some.dense[:, : len(schema.dense)], some.ids, some.labels)
    torch.testing.assert_close(program.module()(make_inputs(batch, schema)), frozen(batch), rtol=0, atol=1e-5)


def test_inputs_are_named_and_a_feature_of_bags_has_two():
    schema = make_schema(multi_hot=True)
    assert list(example_inputs(schema)) == ["dense", "ids.user", "ids.item", "offsets.item"]
    inputs = make_inputs(make_batch(schema, 4), schema)
    assert list(inputs) == list(example_inputs(schema))
    assert inputs["offsets.item"].tolist()[0] == 0
    assert len(inputs["offsets.item"]) == len(inputs["ids.user"]) == 4
    assert list(example_inputs(make_schema(multi_hot=False))) == ["dense", "ids"]


def test_a_served_model_takes_its_inputs_by_name():
    for multi_hot in (False, True):
        schema = make_schema(multi_hot=multi_hot)
        frozen, batch = cce.freeze(make_model(schema)), make_batch(schema, 9)
        got = ServedModel(frozen, schema)(make_inputs(batch, schema))
        torch.testing.assert_close(got, frozen(batch), rtol=0, atol=1e-6)
