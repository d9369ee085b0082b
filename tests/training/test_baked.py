"""Options of runs on baked data: pointers are fixed, and tables are those that were baked."""

import pytest

from cce.data import PreparedData
from cce.schema import Feature, Pointers, Schema
from cce.training.baked import baked_config
from cce.training.building import build_model, with_num_learned
from helpers.runs import tiny_config

POINTERS = Pointers(4, 2, 20, "")  # 320 parameters of dimension 8
SCHEMA = Schema((Feature("c0", 121, pointers=POINTERS), Feature("c1", 31)), ("d0", "d1"))


def config(**changes):
    fixed = {"cluster_every": None, "cluster_times": None, "method_options": {"num_columns": 4}}
    return tiny_config("nowhere", **(fixed | changes))


def test_tables_are_codebooks_and_full_tables_and_are_not_clustered(tmp_path):
    found = with_num_learned(config(), PreparedData(tmp_path, SCHEMA, {}))
    assert found == config(cluster_schedule="none")
    tables = build_model(found, SCHEMA).tables.tables
    assert [(name, table.method, table.num_params) for name, table in tables.items()] == [
        ("c0", "baked", 320),
        ("c1", "full", 248),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster_every": 7}, "^cluster_every must be left out with baked data, whose pointers are fixed, got 7"),
        ({"refits": 2}, "^refits must be left out with baked data, whose pointers are fixed, got 2"),
        ({"cluster_schedule": "one-epoch"}, "^cluster_schedule must be left out with baked data"),
        ({"learned_min_count": 3}, "^learned_min_count must be left out"),
        (
            {"cap": 300},
            "^method, budget and embedding_dim must be those of the baked run: the table of 'c0' has 320 .*288",
        ),
    ],
)
def test_options_that_contradict_the_pointers_are_rejected(changes, message):
    with pytest.raises(ValueError, match=message):
        baked_config(config(**changes), SCHEMA, {"num_columns": 4})
