"""Any string names a feature: in tables, state dicts, models, summaries, schedules and checkpoints."""

import pytest
import torch

import cce
from cce.collection.features import TableDict, feature_name, module_key, readable_path
from cce.schema import Batch, Feature, Schema

HARD = [
    *("type", "items", "values", "training", "forward", "keys", "_modules", "to", "T_destination"),
    *("", ".", "a.b", "a..", "%", "%type", "%2E", "50%", " ", "naïve", "class", "0", "a/b", "a\nb", "all"),
]


@pytest.mark.parametrize("name", ["user", "C1", "user-id", "50%", "naïve", "0", "my column"])
def test_an_ordinary_name_is_the_key_itself_so_that_old_checkpoints_load(name):
    assert module_key(name) == name
    collection = cce.EmbeddingCollection({name: 5}, 2)
    assert list(collection.state_dict()) == [f"tables.{name}.codebook"]


def test_other_names_are_escaped_and_come_back():
    assert [module_key(name) for name in ("type", "a.b", "", "%")] == ["%type", "%a%2Eb", "%", "%%25"]
    assert [feature_name(module_key(name)) for name in HARD] == HARD
    assert len({module_key(name) for name in HARD}) == len(HARD)
    assert readable_path("model.tables.%type.codebook") == "model.tables.type.codebook"


def test_a_dictionary_of_tables_is_used_by_the_names():
    tables = TableDict({"type": torch.nn.Identity(), "user": torch.nn.Identity()})
    assert list(tables) == tables.keys() == ["type", "user"]
    assert tables.items() == [("type", tables["type"]), ("user", tables["user"])]
    assert "type" in tables
    assert "items" not in tables
    del tables["type"]
    assert tables.pop("user") is not None
    assert len(tables) == 0


@pytest.mark.slow
def test_a_collection_takes_any_names_and_its_state_loads():
    sizes = {name: 50 + index for index, name in enumerate(HARD)}
    collection = cce.EmbeddingCollection(sizes, 4, method="cce-paper", cap=40, seed=0)
    ids = torch.stack([torch.randint(size, (7,)) for size in sizes.values()], dim=1)
    vectors = collection(ids)
    for index, name in enumerate(HARD):
        torch.testing.assert_close(vectors[:, index], collection.tables[name](ids[:, index]))
        assert collection.get_submodule(f"tables.{module_key(name)}") is collection.tables[name]
    other = cce.EmbeddingCollection(sizes, 4, method="cce-paper", cap=40, seed=1)
    other.load_state_dict(collection.state_dict())
    assert torch.equal(other(ids), vectors)
    assert torch.equal(collection(dict(zip(sizes, ids.unbind(1), strict=True))), vectors)
    assert len(collection.cluster()) == len(HARD)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["dlrm", "gmf"])
def test_models_summaries_and_schedules_know_them_by_name(model):
    schema = Schema((Feature("type", 500), Feature("a.b", 400)))
    tables = cce.EmbeddingCollection(schema.vocabulary_sizes, 4, method="cce-paper", cap=80, seed=0)
    made = cce.models.create_model(model, schema, tables)
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    schedule = cce.reclustering.ClusterSchedule(made, optimizer, every=1)
    batch = Batch(torch.empty(6, 0), torch.randint(400, (6, 2)), torch.ones(6))
    made(batch).sum().backward()
    optimizer.step()
    assert len(schedule.step()) == 2
    assert schedule.clustered == ["tables.tables.type", "tables.tables.a.b"]
    assert [table.name for table in cce.summary(made).tables] == ["tables.tables.type", "tables.tables.a.b"]


def test_tables_within_a_collection_are_compressed_by_their_escaped_names():
    model = torch.nn.Module()
    model.add_module("tables", TableDict({"type": torch.nn.Embedding(500, 4), "user": torch.nn.Embedding(500, 4)}))
    plan = cce.compress(model, compression=10, names="tables.%type")
    assert [table.name for table in plan.compressed] == ["tables.%type"]
    assert isinstance(model.tables["type"], cce.embeddings.CCEEmbedding)
