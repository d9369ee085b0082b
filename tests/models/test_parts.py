"""A model is made of a schema and of the tables of its features."""

import pytest

import cce
from cce.models import DLRM, GMF
from cce.models.network import check_parts, check_start
from cce.schema import Feature, Schema

SCHEMA = Schema((Feature("a", 5), Feature("b", 6)))


def test_the_tables_of_the_features_pass_in_their_order():
    check_parts(SCHEMA, cce.EmbeddingCollection({"a": 5, "b": 6}, 4))
    with pytest.raises(ValueError, match=r"features of the schema, \['a', 'b'\], got \['b', 'a'\]"):
        check_parts(SCHEMA, cce.EmbeddingCollection({"b": 6, "a": 5}, 4))


def test_tables_may_not_all_start_at_zero_where_only_products_of_them_count():
    message = r"start_scale must not be 'zero' for all tables of model 'gmf': products of zeros have no gradient\."
    zero = cce.EmbeddingCollection({"a": 5, "b": 6}, 4, start_scale="zero")
    with pytest.raises(ValueError, match=message):
        check_start("gmf", zero)
    with pytest.raises(ValueError, match=message):
        GMF(SCHEMA, zero)
    with pytest.raises(ValueError, match=r"for all tables of model 'dlrm'"):
        DLRM(SCHEMA, zero)
    DLRM(Schema((Feature("a", 5), Feature("b", 6)), dense=("x",)), zero)  # dense features have a vector
    one = cce.EmbeddingCollection({"a": 5, "b": 6}, 4, start_scale="dlrm")
    GMF(SCHEMA, one)
