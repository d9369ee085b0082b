"""The ledger against sums made by hand."""

import copy
import json

import pytest
import torch
from torch import nn

import cce
from cce.budget import FULL_SIZED

SEEDS = 3 * 8  # bytes of a hash function


class Model(nn.Module):
    """A table of each kind, two of them tied, and weights that are no table's."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.output = nn.Embedding(50, 8)
        self.output.weight = self.words.weight
        self.tags = nn.EmbeddingBag(30, 4)
        self.users = cce.embeddings.HashingTrickEmbedding(1000, 8, num_rows=25)
        self.items = cce.embeddings.EmbeddingBag(cce.embeddings.ClusteredEmbedding(600, 8, num_rows=10, num_columns=4))
        self.top = nn.Linear(8, 1)

    def loss(self):
        """Touches every table once."""
        ids = torch.tensor([1, 2, 3])
        total = self.words(ids).sum() + self.output(ids).sum() + self.tags(ids[None]).sum()
        return total + self.users(ids).sum() + self.items(ids[None]).sum()


@pytest.fixture(scope="module")
def model():
    return Model()


def table(summary, name):
    return next(table for table in summary.tables if table.name == name)


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_every_table_is_found_and_tied_ones_once(model):
    found = {table.name: table.method for table in cce.summary(model).tables}
    assert found == {"words": "nn.Embedding", "tags": "nn.EmbeddingBag", "users": "hash", "items.table": "cce-paper"}


def test_a_module_used_twice_is_counted_once():
    shared = nn.Embedding(10, 4)
    assert len(cce.summary(nn.ModuleDict({"a": shared, "b": shared})).tables) == 1


def test_equal_weights_that_are_not_tied_are_counted_twice():
    one = nn.Embedding(10, 4)
    assert len(cce.summary(nn.ModuleList([one, copy.deepcopy(one)])).tables) == 2


def test_params_and_bytes_by_hand(model):
    facts = {
        table.name: (
            table.num_params,
            table.codebook_nbytes,
            table.pointer_nbytes,
            table.full_params,
            table.full_nbytes,
        )
        for table in cce.summary(model).tables
    }
    pointers = 600 * 4 // 2 + 3  # half a byte each, and the padding
    hashes = 4 * SEEDS  # of the helper
    assert facts == {
        "words": (400, 1600, 0, 400, 1600),
        "tags": (120, 480, 0, 120, 480),
        "users": (200, 800, SEEDS, 8000, 32_000),
        "items.table": (4 * 2 * 10 * 2, 640, pointers + hashes, 4800, 19_200),
    }


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 8), (torch.bfloat16, 2)])
def test_bytes_follow_the_type_and_params_do_not(dtype, size):
    entry = cce.summary(nn.ModuleList([cce.embeddings.HashingTrickEmbedding(100, 8, num_rows=5).to(dtype)])).tables[0]
    assert (entry.num_params, entry.codebook_nbytes, entry.full_nbytes) == (40, 40 * size, 800 * size)


@pytest.mark.parametrize("method", cce.embeddings.list_methods())
def test_a_table_alone_is_a_model_too(method):
    own = cce.create_embedding(method, 300, 8, compression=1 if method in FULL_SIZED else 3, seed=0)
    (entry,) = cce.summary(own).tables
    assert (entry.name, entry.method) == ("(model)", method)
    assert (entry.num_embeddings, entry.embedding_dim, entry.full_params) == (300, 8, 2400)
    assert (entry.num_params, entry.nbytes) == (own.num_params, own.nbytes)


# -- both compressions -------------------------------------------------------------------------------------------------


def test_both_compressions_as_the_paper_counts_them():
    """Vocabularies of 10, 100 and a million under a cap of 8,000: small ones stay full."""
    sizes = (10, 100, 10**6)
    tables = [cce.create_embedding("hash", size, 16, num_params=min(8000, 16 * size), seed=0) for size in sizes]
    summary = cce.summary(nn.ModuleList(tables))
    assert [entry.num_params for entry in summary.tables] == [160, 1600, 8000]
    assert summary.total.full_params == 16 * sum(sizes)
    assert summary.total.num_params == 9760
    assert summary.total.compression == pytest.approx(1639.52, abs=0.01)
    assert summary.largest.compression == 2000
    assert summary.largest.name == "2"
    text = str(summary)
    assert "1,640×" in text.splitlines()[-2]
    assert text.splitlines()[-1].startswith("largest table: 2, 2,000× fewer params, ")


def test_the_largest_table_is_the_one_that_would_be_if_all_were_full(model):
    assert cce.summary(model).largest.name == "users"  # though words weighs more now


# -- optimizers --------------------------------------------------------------------------------------------------------


STEP = 4  # bytes of the step counter that torch keeps for each parameter
OPTIMIZERS = {
    "SGD": (lambda p: torch.optim.SGD(p, lr=0.1), lambda nbytes: 0),
    "SGD with momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda nbytes: nbytes),
    "Adagrad": (lambda p: torch.optim.Adagrad(p, lr=0.1), lambda nbytes: nbytes + STEP),
    "Adam": (lambda p: torch.optim.Adam(p, lr=0.1), lambda nbytes: 2 * nbytes + STEP),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizers_state_by_hand(name):
    make, state_of = OPTIMIZERS[name]
    model = Model()
    optimizer = make(model.parameters())
    model.loss().backward()
    optimizer.step()
    found = {entry.name: entry.optimizer_nbytes for entry in cce.summary(model, optimizer).tables}
    expected = {"words": 1600, "tags": 480, "users": 800, "items.table": 640}
    assert found == {table: state_of(nbytes) for table, nbytes in expected.items()}
    assert cce.summary(model, optimizer).total.optimizer_nbytes == sum(found.values())


def test_gradients_by_hand():
    tables = nn.ModuleDict(
        {"dense": nn.Embedding(50, 8), "sparse": nn.Embedding(50, 8, sparse=True), "none": nn.Embedding(50, 8)}
    )
    ids = torch.tensor([1, 2, 3])
    (tables["dense"](ids).sum() + tables["sparse"](ids).sum()).backward()
    found = {entry.name: entry.gradient_nbytes for entry in cce.summary(tables).tables}
    assert found == {"dense": 1600, "sparse": 3 * (8 + 8 * 4), "none": 0}
    total = cce.summary(tables).total
    assert total.training_nbytes == total.nbytes + 1600 + 120


@pytest.mark.slow
def test_before_its_first_step_adam_holds_nothing(model):
    optimizer = torch.optim.Adam(model.parameters())
    assert cce.summary(model, optimizer).total.optimizer_nbytes == 0
    assert not optimizer.state  # and asking did not change that


def test_the_optimizer_counts_neither_as_table_nor_in_its_compression():
    table = cce.embeddings.HashingTrickEmbedding(100, 8, num_rows=5)
    optimizer = torch.optim.Adagrad(table.parameters())
    entry = cce.summary(table, optimizer).tables[0]
    assert entry.optimizer_nbytes == 160 + STEP
    assert entry.nbytes == 160 + SEEDS
    assert entry.byte_compression == 3200 / 184


# -- as data and as text -----------------------------------------------------------------------------------------------


def test_as_data_it_is_plain_json(model):
    data = cce.summary(model).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert [entry["name"] for entry in data["tables"]] == ["words", "tags", "users", "items.table"]
    assert data["largest_table"] == data["tables"][2]
    assert data["tables"][2] == {
        "name": "users",
        "method": "hash",
        "num_embeddings": 1000,
        "embedding_dim": 8,
        "num_params": 200,
        "codebook_nbytes": 800,
        "pointer_nbytes": 24,
        "gradient_nbytes": 0,
        "optimizer_nbytes": 0,
        "codes_nbytes": 0,
        "clustering_nbytes": 0,
        "sizes": {},
        "reason": "",
        "training_nbytes": 824,
        "full_params": 8000,
        "full_nbytes": 32_000,
        "nbytes": 824,
        "compression": 40.0,
        "byte_compression": 32_000 / 824,
    }
    assert data["all_tables"]["num_params"] == 880
    assert data["all_tables"]["compression"] == 13_320 / 880


def test_printed_it_has_a_line_for_each_table_and_both_compressions(model):
    lines = str(cce.summary(model)).splitlines()
    assert len({len(line) for line in lines[:7]}) == 1
    assert [" ".join(line.split()) for line in (lines[0], *lines[2:])] == [
        "table method ids dim full params params codebook pointers fewer params fewer bytes",
        "words nn.Embedding 50 8 400 400 1.6 kB 0 B 1.0× 1.0×",
        "tags nn.EmbeddingBag 30 4 120 120 480 B 0 B 1.0× 1.0×",
        "users hash 1,000 8 8,000 200 800 B 24 B 40.0× 38.8×",
        "items.table cce-paper 600 8 4,800 160 640 B 1.3 kB 30.0× 9.9×",
        "all tables 1,680 13,320 880 3.5 kB 1.3 kB 15.1× 11.0×",
        "largest table: users, 40.0× fewer params, 38.8× fewer bytes",
    ]


def test_a_model_without_tables_says_so():
    summary = cce.summary(nn.Linear(3, 4))
    assert summary.tables == ()
    assert str(summary) == "no embedding tables"
    assert summary.to_dict() == {"tables": [], "all_tables": None, "largest_table": None}


def test_a_summary_changes_nothing(model):
    before = copy.deepcopy(model.state_dict())
    cce.summary(model)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
