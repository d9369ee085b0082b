"""A model is made of a schema and of the tables of its features."""

import pytest

import cce
from cce.models.parts import check_parts
from cce.schema import Feature, Schema

SCHEMA = Schema((Feature("a", 5), Feature("b", 6)))


def test_the_tables_of_the_features_pass_in_their_order():
    check_parts(SCHEMA, cce.EmbeddingCollection({"a": 5, "b": 6}, 4))
    with pytest.raises(ValueError, match=r"features of the schema, \['a', 'b'\], got \['b', 'a'\]"):
        check_parts(SCHEMA, cce.EmbeddingCollection({"b": 6, "a": 5}, 4))


def test_other_kinds_are_rejected():
    with pytest.raises(TypeError, match=r"tables must be an EmbeddingCollection, got \{\} of type dict"):
        check_parts(SCHEMA, {})
    with pytest.raises(TypeError, match="schema must be a Schema, got None of type NoneType"):
        check_parts(None, cce.EmbeddingCollection({"a": 5}, 4))
