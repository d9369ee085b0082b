"""Every table can be made without memory and loaded later, and be sent to another process."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import cce
from cce.budget import FULL_SIZED
from helpers.linear_tables import some_ids

NUM_IDS, DIM = 700, 16
FEATURES = {"user": NUM_IDS, "item": 300}


def table(method, device=None, seed=0, **options):
    budget = {"compression": 1} if method in FULL_SIZED else {"num_params": 1600}
    return cce.create_embedding(method, NUM_IDS, DIM, seed=seed, device=device, **budget, **options)


def collection(device=None, seed=0, method="cce-paper"):
    return cce.EmbeddingCollection(FEATURES, DIM, method=method, cap=1600, seed=seed).to(device)


# -- the meta device ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["hash", "hash-embedding", "ce-concat", "ce-mult", "robe", "cce-paper"])
def test_seeds_that_are_not_there_are_named_and_not_read(method):
    empty = table(method, "meta")
    state = {name: value for name, value in table(method).state_dict().items() if "seeds" not in name}
    with pytest.raises(RuntimeError, match="Missing key"):
        empty.load_state_dict(state, assign=True)
    with pytest.raises(ValueError, match="seeds must be on the CPU, as the codebook is, got meta: load"):
        empty(some_ids(300))


def test_a_codebook_whose_memory_was_given_back_is_not_read():
    """As sharded training does with parameters between two steps."""
    one, ids = table("cce-paper"), some_ids(300)
    one(ids)
    one.codebook.data.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="codebook must have its 1600 values in memory, got a storage of 0 bytes"):
        one(ids)


# -- other processes ---------------------------------------------------------------------------------------------------


class Vectors(Dataset):
    """One batch of vectors for each of some tables."""

    def __init__(self, tables):
        self.tables = tables

    def __len__(self):
        return len(self.tables)

    def __getitem__(self, index):
        ids = some_ids(300, 2, high=300)
        with torch.no_grad():
            module = self.tables[index]
            return module(ids if isinstance(module, cce.EmbeddingCollection) else ids[:, 0])


@pytest.mark.slow
def test_tables_are_sent_to_a_data_loader_s_spawned_workers():
    tables = [table(method) for method in cce.embeddings.list_methods()]
    for filled in tables:  # ids of `cce` have rows, and what is looked up is not all zero
        if isinstance(filled, cce.embeddings.CCEEmbedding):
            filled.give_rows(torch.full((NUM_IDS,), 2))
    tables.append(collection())
    dataset = Vectors(tables)
    expected = list(dataset)
    loader = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    found = list(loader)
    assert len(found) == len(expected) == len(cce.embeddings.list_methods()) + 1
    assert all(map(torch.equal, found, expected))
    assert all(map(torch.equal, list(dataset), expected))  # what was sent lies elsewhere now, in shared memory


def train(module, ids, results):
    module(ids).sum().backward()
    results.put([parameter.grad for parameter in module.parameters()])
    results.join()


@pytest.mark.slow
def test_a_table_trains_in_a_spawned_process():
    context = torch.multiprocessing.get_context("spawn")
    module, ids, results = table("cce-paper"), some_ids(300), context.JoinableQueue()
    process = context.Process(target=train, args=(module, ids, results))
    process.start()
    (found,) = results.get(timeout=60)
    found = found.clone()
    results.task_done()
    process.join()
    module(ids).sum().backward()
    assert torch.equal(found, module.codebook.grad)
