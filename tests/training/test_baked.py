"""Options of runs on baked data: pointers are fixed, and tables are those that were baked."""

import json

import pytest

from cce.data import PreparedData
from cce.schema import Feature, Pointers, Schema
from cce.training.baked import table_options
from cce.training.building import build_model, with_defaults
from helpers.runs import tiny_config

POINTERS = Pointers(4, 2, 20, "")  # 320 parameters of dimension 8
SCHEMA = Schema((Feature("c0", 121, pointers=POINTERS), Feature("c1", 31)), ("d0", "d1"))


OPTIONS = {"cluster_every": None, "cluster_times": None, "method_options": {"num_columns": 4}}


def config(**changes):
    return tiny_config("nowhere", **(OPTIONS | changes))


def data(path):
    """The data of a run with these options."""
    return PreparedData(path, SCHEMA, {"run": {"options": json.loads(json.dumps(table_options(config())))}})


def test_tables_are_codebooks_and_full_tables_and_are_not_clustered(tmp_path):
    found = with_defaults(config(), data(tmp_path))
    assert found == config(cluster_schedule="none", code_bits=0, refits=0)
    tables = build_model(found, SCHEMA).tables.tables
    assert [(name, table.method, table.num_params) for name, table in tables.items()] == [
        ("c0", "baked", 320),
        ("c1", "full", 248),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster_every": 7}, "^cluster_every must be left out with baked data, whose pointers are fixed, got 7"),
        ({"code_bits": 8}, "^code_bits must be left out with baked data, whose pointers are fixed, got 8"),
        ({"refits": 2}, "^refits must be left out with baked data, whose pointers are fixed, got 2"),
        ({"cluster_schedule": "one-epoch"}, "^cluster_schedule must be left out with baked data"),
        ({"num_learned": {"c0": 3}}, "^num_learned must be left out"),
        ({"cap": 300}, r"^cap must be that of the run whose pointers .* holds, 320, got 300\.$"),
        ({"method": "pq"}, "^method must be that of the run whose pointers .* holds, 'cce', got 'pq'"),
        ({"method_options": {}}, r"^method_options must be that of the run .* holds, {'num_columns': 4}, got {}\.$"),
    ],
)
def test_options_that_contradict_the_pointers_are_rejected(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        with_defaults(config(**changes), data(tmp_path))
