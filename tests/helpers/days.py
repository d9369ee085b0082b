"""A model with tables of every form that deltas know, which learns another world each day."""

import copy

import torch
from torch import nn

import cce
from cce.indexing import scramble
from cce.serving import write_bundle
from cce.serving.deltas import MODEL

DIM, NUM_ITEMS = 8, 300
USERS = scramble(torch.arange(900))
ITEMS = torch.arange(NUM_ITEMS)


class Model(nn.Module):
    """Open users of whom the least frequent go, bounded items, a table kept in full, hashed ids, and a network."""

    def __init__(self, **users):
        super().__init__()
        self.users = cce.create_embedding("cce", None, DIM, seed=0, **({"max_rows": 200} | users))
        self.items = cce.create_embedding("cce", NUM_ITEMS, DIM, seed=1)
        self.kind = cce.create_embedding("full", 5, DIM, seed=2)
        self.word = cce.create_embedding("hash", None, DIM, num_params=16 * DIM, seed=3)
        self.network = nn.Linear(4 * DIM, 1)

    def forward(self, users, items):
        vectors = [self.users(users), self.items(items), self.kind(items % 5), self.word(users)]
        return self.network(torch.cat(vectors, dim=1)).squeeze(1)


def learn(model, day, *, optimizer=None):
    """Users of a day are the 250 from 100 · day on; items are those below 80 · (day + 1)."""
    optimizer = optimizer or cce.optim.Adam(model, lr=0.05)
    draw = torch.Generator().manual_seed(day)
    for _ in range(4):
        users = torch.randint(100 * day, 100 * day + 250, (200,), generator=draw)
        items = torch.randint(min(80 * (day + 1), NUM_ITEMS), (200,), generator=draw)
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(USERS[users], items), (users % 2).float())
        loss.backward()
        optimizer.step()
    return model


def learned(**users):
    torch.manual_seed(0)
    return learn(Model(**users), 0)


def export(model, folder, **sizes):
    """A full export; the model goes on. What `freeze` gave is returned."""
    compact = copy.deepcopy(model)
    cce.finalize(compact, seed=0, **(sizes or {"num_columns": 2, "num_rows": 16}))
    frozen = cce.freeze(compact)
    folder.mkdir(exist_ok=True)
    write_bundle(folder / MODEL, frozen)
    return frozen
