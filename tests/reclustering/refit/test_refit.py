"""Refit, whole: pointers fitted to training rows."""

import weakref

import numpy as np
import pytest
import torch
from torch import nn

from cce import EmbeddingCollection
from cce.models import create_model
from cce.reclustering import Refit
from cce.reclustering.refit import passes
from cce.reclustering.refit import refit as refit_module
from cce.reclustering.refit.sources import cross_entropy
from cce.schema import Batch, Feature, Schema
from helpers.ratings import finalized

DIM = 4
USERS, ITEMS = 400, 120
SCHEMA = Schema((Feature("user", USERS), Feature("item", ITEMS)))
ID_NBYTES = 4 * (DIM * (DIM + 1) // 2 + 4 * DIM + 6)  # half a hessian, four vectors, its name and sums


class Ratings:
    """Ratings of users and items that fall into eight clusters each; `signal=0` for labels by chance."""

    def __init__(self, num_rows: int, seed: int, *, signal: float = 2.0) -> None:
        planted = np.random.default_rng(0)
        users, items = (planted.standard_normal((8, DIM))[planted.integers(0, 8, size)] for size in (USERS, ITEMS))
        rng = np.random.default_rng(seed)
        ids = np.stack([rng.integers(0, USERS, num_rows), rng.integers(0, ITEMS, num_rows)], 1)
        logits = signal * (users[ids[:, 0]] * items[ids[:, 1]]).sum(1)
        self.labels = torch.from_numpy((rng.random(num_rows) < 1 / (1 + np.exp(-logits))).astype(np.float32))
        self.ids = torch.from_numpy(ids)

    def __len__(self) -> int:
        return len(self.ids)

    def fetch(self, rows: np.ndarray) -> Batch:
        return Batch(torch.zeros(len(rows), 0), self.ids[rows], self.labels[rows])


def make_model(model: str = "gmf", *, num_ids: int | None = None) -> nn.Module:
    options = {"cce": {"num_columns": 2, "start_scale": 0.3}}
    tables = EmbeddingCollection(SCHEMA.vocabulary_sizes, DIM, method="cce", cap=64, options=options, seed=0)
    tables = finalized(tables, num_ids)
    network = {} if model == "gmf" else {"top": [16], "generator": torch.Generator().manual_seed(1)}
    return create_model(model, SCHEMA, tables, **network)


def train(model: nn.Module, rows: Ratings, num_steps: int = 150, *, numbers=None, parameters=None) -> None:
    optimizer = torch.optim.Adam(model.parameters() if parameters is None else parameters, 0.03)
    rng = np.random.default_rng(1)
    for _ in range(num_steps):
        batch = rows.fetch(rng.choice(len(rows) if numbers is None else numbers, 512))
        optimizer.zero_grad()
        cross_entropy(model(batch), batch).mean().backward()
        optimizer.step()


@torch.no_grad()
def score(model: nn.Module, rows: Ratings) -> float:
    batch = rows.fetch(np.arange(len(rows)))
    return float(cross_entropy(model(batch), batch).mean())


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.slow
def test_pointers_by_chance_become_as_good_as_full_tables():
    rows, held_out = Ratings(20_000, 1), Ratings(20_000, 2)
    refitted = make_model()
    train(refitted, rows)
    random = score(refitted, held_out)
    refit = Refit(refitted, rows)
    for turn in range(3):
        refit.round(use_all_rows=turn == 2, generator=seeded(turn))
    full = create_model("gmf", SCHEMA, EmbeddingCollection(SCHEMA.vocabulary_sizes, DIM, method="full", seed=0))
    train(full, rows, 400)
    assert score(refitted, held_out) < random - 0.1
    assert score(refitted, held_out) < score(full, held_out) + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("num_rounds", [1, 4, 8])
@pytest.mark.parametrize("has_network", [False, True])
def test_labels_by_chance_are_not_learned(num_rounds, has_network):
    """Also not by a network that is trained between rounds, on rows that no table was fitted on."""
    rows, held_out = Ratings(6_000, 1, signal=0), Ratings(20_000, 2, signal=0)
    model = make_model(model="dlrm" if has_network else "gmf")
    train(model, rows, 30)
    refit = Refit(model, rows, folds=2 + has_network, spare_fold=has_network)
    for turn in range(num_rounds):
        is_last = turn == num_rounds - 1
        refit.round(use_all_rows=is_last, generator=seeded(turn))
        if has_network and not is_last:
            train(model, rows, 15, numbers=refit.network_fold.numbers(len(rows)), parameters=model.top.parameters())
    constant = float(np.log(2))
    assert score(model, held_out) < constant + 0.01


def test_nothing_changes_before_it_is_applied_and_only_the_table_after_it():
    rows, model = Ratings(3_000, 1), make_model()
    train(model, rows, 5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    staged = Refit(model, rows).stage("user", generator=seeded())["user"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    staged.apply()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all("user" in name for name in changed)
    assert model.training


def test_an_interruption_leaves_everything_as_it_was():
    rows, model = Ratings(3_000, 1), make_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    calls = []

    def interrupted(logits, batch):
        calls.append(len(batch))
        if len(calls) > 1:
            raise KeyboardInterrupt
        return cross_entropy(logits, batch)

    refit = Refit(model, rows, loss=interrupted)
    with pytest.raises(KeyboardInterrupt):
        refit.stage("user", "item", generator=seeded())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not refit.priors
    assert not model.tables._forward_hooks


@pytest.mark.slow
def test_equal_seeds_give_equal_pointers_and_blocks_hardly_matter():
    rows = Ratings(4_000, 1)
    states = []
    for max_ids in (1 << 16, 1 << 16, 90):
        model = make_model()
        refit = Refit(model, rows, max_nbytes=ID_NBYTES * max_ids)
        assert refit.nbytes_per_id("user") == ID_NBYTES
        refit.round(generator=seeded())
        states.append(score(model, rows))
    assert states[0] == states[1]
    assert states[2] == pytest.approx(states[0], abs=5e-3)


@pytest.mark.parametrize(
    ("dim", "num_columns", "expected"),
    [(16, 4, 16), (12, 1, 12), (64, 4, 16), (32, 8, 16), (24, 4, 12), (20, 4, 10), (48, 2, 24), (64, 1, 64)],
)
def test_blocks_of_wide_vectors_are_whole_columns(dim, num_columns, expected):
    options = {"cce": {"num_columns": num_columns}}
    tables = EmbeddingCollection(SCHEMA.vocabulary_sizes, dim, method="cce", cap=8 * dim, options=options, seed=0)
    refit = Refit(create_model("gmf", SCHEMA, finalized(tables)), Ratings(500, 1))
    assert refit.block_dim("user") == expected
    assert refit.nbytes_per_id("user") == 4 * (dim * (expected + 1) // 2 + 4 * dim + 6)


def test_what_it_holds_is_bounded():
    """Half a Hessian and four vectors of the ids at a time, three Hessians of those that are solved; 4 bytes and
    new pointers of all of them; a new table; the block of each row if there are several."""
    model, rows = make_model(), Ratings(500, 1)
    table = model.tables.tables["user"]
    every, solved = USERS * (4 + 4 * 2) + table.nbytes, 3 * 4 * DIM**2
    assert Refit(model, rows).nbytes("user") == USERS * (ID_NBYTES + solved) + every
    few = Refit(model, rows, max_nbytes=ID_NBYTES * 150)
    assert few.num_blocks("user") == 3
    assert few.nbytes("user") == 134 * (ID_NBYTES + solved) + every + len(rows)


def test_ids_without_rows_have_zeros_and_ids_that_no_training_row_has_the_mean_of_the_prior():
    rows, model = Ratings(3_000, 1), make_model(num_ids=100)
    rows.ids[rows.ids[:, 0] == 0, 0] = 1  # id 0 has a row of the table, and no row to be fitted on
    refit = Refit(model, rows)
    refit.round(use_all_rows=True, generator=seeded())
    with torch.no_grad():
        vectors = model.tables.tables["user"](torch.arange(USERS))
    assert not vectors[100:].any()
    assert vectors[:100].any(dim=1).all()
    prior = refit.priors["user"]
    assert prior.cost(vectors[:1]) < prior.cost(vectors[1:100]).median()


def test_it_holds_half_of_what_full_tables_would_unless_told():
    def usual(num_ids):
        tables = EmbeddingCollection({"user": num_ids, "item": 20}, 16, method="cce", cap=64, seed=0)
        schema = Schema((Feature("user", num_ids), Feature("item", 20)))
        return Refit(create_model("gmf", schema, tables), Ratings(500, 1)).max_nbytes

    assert usual(100) == 1 << 24
    assert usual(200_000) == 200_020 * 16 * 16 // 2


def test_what_it_holds_at_once_is_that_of_the_largest_group():
    model, rows = make_model(), Ratings(500, 1)
    alone, both = Refit(model, rows, folds=2), Refit(model, rows, folds=1)
    assert alone.peak_nbytes == {"user": alone.nbytes("user")}
    assert both.peak_nbytes == {name: both.nbytes(name) for name in ("user", "item")}


def test_hessians_are_held_one_block_of_ids_at_a_time(monkeypatch):
    """No block is alive when the next one is fitted, nor those of a step when the next step begins."""
    held, num_alive = [], []
    zeros = passes._Sums.zeros

    def watched(target):
        num_alive.append(sum(each() is not None for each in held))
        sums = zeros(target)
        held.append(weakref.ref(sums.packed))
        return sums

    monkeypatch.setattr(passes._Sums, "zeros", watched)
    refit = Refit(make_model(), Ratings(3_000, 1), max_nbytes=ID_NBYTES * 90)
    refit.stage("user", generator=seeded())
    assert num_alive == [0] * 5


@pytest.mark.slow
def test_blocks_score_as_whole_hessians_do(monkeypatch):
    rows, held_out = Ratings(20_000, 1), Ratings(20_000, 2)
    scores = []
    for widest in (DIM, DIM // 2):
        monkeypatch.setattr(refit_module, "WIDEST_BLOCK", widest)
        model = make_model()
        train(model, rows)
        refit = Refit(model, rows)
        assert refit.block_dim("user") == widest
        for turn in range(3):
            refit.round(use_all_rows=turn == 2, generator=seeded(turn))
        scores.append(score(model, held_out))
    assert scores[1] == pytest.approx(scores[0], abs=0.01)
    assert scores[1] < 0.55


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_bags(pooling):
    """Each row has a bag of two users, who are fitted through it."""
    rng = np.random.default_rng(0)
    num_rows = 4_000
    values = np.random.default_rng(3).standard_normal((40, 1))
    users = rng.integers(0, 40, (num_rows, 2))
    scale = 1 if pooling == "sum" else 0.5
    labels = rng.random(num_rows) < 1 / (1 + np.exp(-3 * scale * values[users, 0].sum(1)))

    class Bags:
        def __len__(self):
            return num_rows

        def fetch(self, rows):
            flat = np.concatenate([users[rows].reshape(-1), np.zeros(len(rows), np.int64)])
            offsets = np.concatenate([np.arange(0, 2 * len(rows), 2), 2 * len(rows) + np.arange(len(rows) + 1)])
            return Batch(
                torch.zeros(len(rows), 0),
                torch.from_numpy(flat),
                torch.from_numpy(labels[rows].astype(np.float32)),
                offsets=torch.from_numpy(offsets),
            )

    schema = Schema((Feature("user", 40, multi_hot=True), Feature("item", 5)))
    options = {"cce": {"num_columns": 1, "start_scale": 0.3}}
    tables = EmbeddingCollection(
        schema.vocabulary_sizes, 2, method="cce", cap=32, options=options, pooling=pooling, seed=0
    )
    model = create_model("gmf", schema, finalized(tables))
    with torch.no_grad():
        next(iter(tables.tables["item"].parameters())).fill_(1.0)
    rows = Bags()
    batch = rows.fetch(np.arange(num_rows))
    refit = Refit(model, rows, folds=1)
    for turn in range(8):
        refit.stage("user", generator=seeded(turn))["user"].apply()
    best = float(np.mean(np.logaddexp(0, -np.where(labels, 1, -1) * 3 * scale * values[users, 0].sum(1))))
    with torch.no_grad():
        assert float(cross_entropy(model(batch), batch).mean()) < best + 0.02


def test_groups_are_as_large_as_may_be_and_no_fold_goes_without_one():
    model, rows, each = make_model(), Ratings(500, 1), ID_NBYTES
    assert Refit(model, rows, folds=1).groups == [["user", "item"]]
    assert Refit(model, rows, folds=2).groups == [["user"], ["item"]]
    assert Refit(model, rows, folds=1, max_nbytes=each * (USERS + ITEMS)).groups == [["user", "item"]]
    assert Refit(model, rows, folds=1, max_nbytes=each * (USERS + ITEMS - 1)).groups == [["user"], ["item"]]


def test_tables_and_network_have_rows_of_their_own():
    model, rows = make_model(), Ratings(3_000, 1)
    read = []

    class Watched(Ratings):
        def fetch(self, numbers):
            read.append(set(numbers.tolist()))
            return super().fetch(numbers)

    watched = Watched(3_000, 1)
    refit = Refit(model, watched, folds=3, spare_fold=True)
    by_table, last = {}, 0

    def done(feature, event):
        nonlocal last
        by_table[feature], last = set().union(*read[last:]), len(read)
        own = rows.ids[sorted(by_table[feature]), list(SCHEMA.vocabulary_sizes).index(feature)]
        assert event.num_ids == int((own.bincount() > 0).sum())

    refit.round(generator=seeded(), done=done)
    network = set(refit.network_fold.numbers(len(rows)).tolist())
    assert not by_table["user"] & by_table["item"] | by_table["user"] & network | by_table["item"] & network
    assert by_table["user"] | by_table["item"] | network == set(range(3_000))
    refit.round(use_all_rows=True, generator=seeded(), done=done)
    assert by_table["user"] == by_table["item"] == set(range(3_000))


def test_what_cannot_be_refitted_is_said():
    rows, model = Ratings(500, 1), make_model()
    with pytest.raises(ValueError, match=r"feature must be one whose table is final .* got 'film'"):
        Refit(model, rows).stage("film")
    with pytest.raises(TypeError, match="rows must be an object with"):
        Refit(model, [1, 2, 3])
    with pytest.raises(ValueError, match=r"folds must lie in \[1, 2\*\*16\), got 0"):
        Refit(model, rows, folds=0)
    with pytest.raises(ValueError, match=r"folds must lie in \[2, 2\*\*16\), got 1"):
        Refit(model, rows, folds=1, spare_fold=True)


@pytest.mark.parametrize("model", ["gmf", "dlrm"])
def test_steps_are_not_tried_again_where_hardly_any_was_too_long(model, monkeypatch):
    rows, made, tried = Ratings(3_000, 1), make_model(model), []
    losses = passes.SharedPass.losses
    monkeypatch.setattr(passes.SharedPass, "losses", lambda *given: tried.append(0) or losses(*given))
    refit = Refit(made, rows)
    for share in (0.0, 0.2):
        refit.round(generator=seeded())
        assert len(tried) == 2  # of each table
        assert set(refit.shortened) == {"user", "item"}
        refit.shortened = dict.fromkeys(refit.shortened, share)
        tried.clear()
        again = Refit(made, rows)
        again.load_state_dict(refit.state_dict())
        again.round(generator=seeded())
        assert len(tried) == (2 if share else 0)
        tried.clear()
        refit.shortened.clear()


@pytest.mark.parametrize(("num_columns", "num_rows"), [(1, 300), (DIM, 256), (2, 5)])
def test_any_number_of_columns_and_rows_can_be_refitted(num_columns, num_rows):
    """One column of many rows, one for each dimension, and more rows than a table has ids."""
    rows, held_out = Ratings(8_000, 1), Ratings(8_000, 2)
    options = {"cce": {"num_columns": num_columns, "num_rows": num_rows, "start_scale": 0.3}}
    tables = EmbeddingCollection(SCHEMA.vocabulary_sizes, DIM, method="cce", cap=1 << 20, options=options, seed=0)
    model = create_model("gmf", SCHEMA, finalized(tables))
    train(model, rows, 40)
    before, refit = score(model, held_out), Refit(model, rows)
    for turn in range(3):
        refit.round(use_all_rows=turn == 2, generator=seeded(turn))
    assert score(model, held_out) < before - 0.02
