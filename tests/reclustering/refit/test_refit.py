"""Refit, whole: pointers fitted to training rows."""

import numpy as np
import pytest
import torch
from torch import nn

from cce import EmbeddingCollection
from cce.distributed import current_ranks
from cce.models import create_model
from cce.reclustering import Refit, Source, is_on_parts, why_stop
from cce.reclustering.refit import refit as refit_module
from cce.schema import Batch, Feature, Schema
from helpers.draws import seeded
from helpers.ratings import finalized

DIM = 4
USERS, ITEMS = 400, 120
SCHEMA = Schema((Feature("user", USERS), Feature("item", ITEMS)))
ID_NBYTES = 4 * (DIM * (DIM + 1) // 2 + DIM + 1)  # half a Hessian, a gradient, and how many rows


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
    torch.manual_seed(1)
    return create_model(model, SCHEMA, tables, **({} if model == "gmf" else {"top": [16]}))


def cross_entropy(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(logits, batch.labels, reduction="none")


def make_refit(model: nn.Module, rows: Ratings, *, batch_size: int = 1000, loss=cross_entropy, **options) -> Refit:
    def batches():
        return (rows.fetch(some) for some in np.split(np.arange(len(rows)), range(batch_size, len(rows), batch_size)))

    return Refit(Source(model, batches, forward=lambda batch: (model(batch), batch), loss=loss), **options)


def train(model: nn.Module, rows: Ratings, num_steps: int = 150) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    rng = np.random.default_rng(1)
    for _ in range(num_steps):
        batch = rows.fetch(rng.choice(len(rows), 512))
        optimizer.zero_grad()
        cross_entropy(model(batch), batch).mean().backward()
        optimizer.step()


@torch.no_grad()
def score(model: nn.Module, rows: Ratings) -> float:
    batch = rows.fetch(np.arange(len(rows)))
    return float(cross_entropy(model(batch), batch).mean())


@pytest.mark.slow
def test_pointers_by_chance_become_as_good_as_full_tables():
    rows, held_out = Ratings(20_000, 1), Ratings(20_000, 2)
    refitted = make_model()
    train(refitted, rows)
    random = score(refitted, held_out)
    refit = make_refit(refitted, rows)
    for turn in range(4):
        refit.round(generator=seeded(turn))
    full = create_model("gmf", SCHEMA, EmbeddingCollection(SCHEMA.vocabulary_sizes, DIM, method="full", seed=0))
    train(full, rows, 400)
    assert score(refitted, held_out) < random - 0.1
    assert score(refitted, held_out) < score(full, held_out) + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("num_rounds", [1, 4, 8])
@pytest.mark.parametrize("model", ["gmf", "dlrm"])
def test_labels_by_chance_are_not_learned(num_rounds, model):
    rows, held_out = Ratings(6_000, 1, signal=0), Ratings(20_000, 2, signal=0)
    made = make_model(model)
    train(made, rows, 30)
    refit = make_refit(made, rows)
    for turn in range(num_rounds):
        refit.round(generator=seeded(turn))
    assert score(made, held_out) < float(np.log(2)) + 0.01


def test_an_interruption_leaves_everything_as_it_was():
    rows, model = Ratings(3_000, 1), make_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    calls = []

    def interrupted(logits, batch):
        calls.append(len(batch))
        if len(calls) > 1:
            raise KeyboardInterrupt
        return cross_entropy(logits, batch)

    refit = make_refit(model, rows, loss=interrupted)
    with pytest.raises(KeyboardInterrupt):
        refit.round(generator=seeded())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not refit.priors
    assert not model.tables._forward_hooks
    assert model.training


def test_only_the_tables_change_and_all_of_them():
    rows, model = Ratings(3_000, 1), make_model("dlrm")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen = []
    events = make_refit(model, rows).round(generator=seeded(), seen=seen.append)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.split(".")[2] for name in changed} == {"user", "item"}
    assert all(name.startswith("tables.tables.") for name in changed)
    assert [event.num_ids for event in events.values()] == [USERS, ITEMS]
    assert seen == [1000] * 3


@pytest.mark.slow
def test_equal_seeds_give_equal_pointers_and_the_number_of_passes_hardly_matters():
    rows = Ratings(4_000, 1)
    states, num_seen = [], []
    for max_ids in (1 << 16, 1 << 16, 200):
        model = make_model()
        refit = make_refit(model, rows, max_nbytes=ID_NBYTES * max_ids)
        refit.round(generator=seeded(), seen=num_seen.append)
        states.append(score(model, rows))
    assert refit.num_passes == 3
    assert sum(num_seen) == (1 + 1 + 3) * 4_000
    assert states[0] == states[1]
    assert states[2] == pytest.approx(states[0], abs=5e-3)


def test_a_resumed_refit_goes_on_with_the_same_bits():
    rows, models = Ratings(3_000, 1), [make_model(), make_model()]
    whole = make_refit(models[0], rows)
    for turn in range(2):
        whole.round(generator=seeded(turn))
    first, second = make_refit(models[1], rows), make_refit(models[1], rows)
    first.round(generator=seeded(0))
    second.load_state_dict(first.state_dict())
    second.round(generator=seeded(1))
    expected = models[0].state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in models[1].state_dict().items())


def test_ids_without_rows_have_zeros_and_ids_that_no_training_row_has_the_mean_of_the_prior():
    rows, model = Ratings(3_000, 1), make_model(num_ids=100)
    rows.ids[rows.ids[:, 0] == 0, 0] = 1  # id 0 has a row of the table, and no row to be fitted on
    refit = make_refit(model, rows)
    refit.round(generator=seeded())
    with torch.no_grad():
        vectors = model.tables.tables["user"](torch.arange(USERS))
    assert not vectors[100:].any()
    assert vectors[:100].any(dim=1).all()
    prior = refit.priors["tables.tables.user"]
    cost = ((vectors - prior.mean) * prior.gradient(vectors)).sum(1)
    assert cost[0] < cost[1:100].median()


def test_it_holds_what_full_tables_would_unless_told():
    def usual(num_ids):
        tables = EmbeddingCollection({"user": num_ids, "item": 20}, 16, method="cce", cap=64, seed=0)
        schema = Schema((Feature("user", num_ids), Feature("item", 20)))
        return make_refit(create_model("gmf", schema, finalized(tables)), Ratings(500, 1)).max_nbytes

    assert usual(100) == 1 << 26
    assert usual(300_000) == 300_020 * 16 * 16


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
    refit = make_refit(model, rows)
    for turn in range(8):
        refit.round(generator=seeded(turn))
    best = float(np.mean(np.logaddexp(0, -np.where(labels, 1, -1) * 3 * scale * values[users, 0].sum(1))))
    with torch.no_grad():
        assert float(cross_entropy(model(batch), batch).mean()) < best + 0.02


@pytest.mark.parametrize(("num_columns", "num_rows"), [(1, 300), (DIM, 256), (2, 5)])
def test_any_number_of_columns_and_rows_can_be_refitted(num_columns, num_rows):
    """One column of many rows, one for each dimension, and more rows than a table has ids."""
    rows, held_out = Ratings(8_000, 1), Ratings(8_000, 2)
    options = {"cce": {"num_columns": num_columns, "num_rows": num_rows, "start_scale": 0.3}}
    tables = EmbeddingCollection(SCHEMA.vocabulary_sizes, DIM, method="cce", cap=1 << 20, options=options, seed=0)
    model = create_model("gmf", SCHEMA, finalized(tables))
    train(model, rows, 40)
    before, refit = score(model, held_out), make_refit(model, rows)
    for turn in range(3):
        refit.round(generator=seeded(turn))
    assert score(model, held_out) < before - 0.02


@pytest.mark.parametrize(
    ("rounds", "scores", "expected"),
    [
        ("auto", [0.5], ""),
        ("auto", [0.5, 0.49], ""),
        ("auto", [0.5, 0.4999], "the first round gained too little"),
        ("auto", [0.5, 0.51], "the first round gained too little"),
        ("auto", [0.5, float("nan")], "the first round gained too little"),
        ("auto", [0.5, 0.49, 0.6, 0.7], ""),  # rounds on parts
        ("auto", [0.5, 0.49, 0.6, 0.7, 0.4], "all rounds are done"),
        ("auto", [-0.8, -0.801], ""),  # such as an AUC, of which more is better
        ("auto", [-0.8, -0.8001], "the first round gained too little"),
        ("auto", [None, None, None, None], ""),
        ("auto", [None, None, None, None, None], "all rounds are done"),
        (2, [0.5, 0.6], ""),
        (2, [0.5, 0.6, 0.7], "all rounds are done"),
    ],
)
def test_rounds_end_with_a_trial_that_gains_too_little_unless_a_number_is_given(rounds, scores, expected):
    assert why_stop(rounds, scores) == expected


def test_rounds_between_the_first_and_the_last_are_on_parts():
    found = {rounds: [is_on_parts(number, rounds) for number in range(1, rounds + 1)] for rounds in (1, 2, 3, 5)}
    assert found == {1: [False], 2: [True, False], 3: [False, True, False], 5: [False, True, True, True, False]}


def test_rounds_on_all_rows_fit_noise_and_rounds_on_parts_do_not():
    """Tables that are fitted to labels that another one has learned believe them: labels by chance are learned."""
    found = {}
    for on_parts in (False, True):
        rows, model = Ratings(4_000, 1, signal=0.0), make_model()
        train(model, rows, 40)
        refit = make_refit(model, rows)
        for turn in range(4):
            refit.round(generator=seeded(turn), on_parts=on_parts)
        found[on_parts] = score(model, rows)
    assert found[False] < found[True] - 0.003
    assert found[True] > np.log(2) - 0.005


def test_the_part_of_a_row_depends_on_its_ids_alone_and_tables_have_parts_of_their_own():
    rows, model = Ratings(3_000, 1), make_model()
    refit, order = make_refit(model, rows), np.random.default_rng(0).permutation(3_000)
    with refit.hooks.attached():
        given, shuffled = (
            refit.hooks.record(lambda numbers=numbers: model(rows.fetch(numbers))).parts(2)
            for numbers in (np.arange(3_000), order)
        )
    assert torch.equal(given[order], shuffled)
    assert 1_300 < int(given.sum()) < 1_700
    sums = dict(refit._pass(0, current_ranks(), on_parts=True))
    assert [quadratics.moving for quadratics in sums.values()] == pytest.approx([1, 1])  # one vector of each row moves
    first, second = (quadratics.num_rows.sum() for quadratics in sums.values())
    assert (int(first), int(second)) == (3_000 - int(given.sum()), int(given.sum()))


def test_without_compiled_loops_it_says_so(monkeypatch):
    monkeypatch.setattr(refit_module, "available", False)
    with pytest.raises(RuntimeError, match="refits need compiled loops"):
        make_refit(make_model(), Ratings(500, 1))
