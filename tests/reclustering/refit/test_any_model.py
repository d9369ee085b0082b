"""`cce.refit` for models of one's own: hooks, bags, shared tables, losses, loaders, rounds."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import cce
from cce.distributed import Ranks
from cce.reclustering import Refit, Source
from cce.reclustering.refit.estimates import unpack
from helpers.final_form import finalize_table

DIM, USERS, ITEMS = 4, 60, 40


def final_table(num_embeddings: int, *, seed: int = 0, **options) -> cce.embeddings.CCEEmbedding:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.full((num_embeddings,), 2)
    options = {"num_columns": 2, "num_rows": 8, "start_scale": 0.3} | options
    table = cce.embeddings.CCEEmbedding(num_embeddings, DIM, counts=counts, generator=generator, **options)
    finalize_table(table, generator=generator)
    return table


class Ratings(nn.Module):
    """One table a feature, looked up as `nn.Embedding` is, and a dense input."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = final_table(USERS), final_table(ITEMS, seed=1)
        self.dense = nn.Linear(1, 1, bias=False)

    def forward(self, users: Tensor, items: Tensor, dense: Tensor) -> Tensor:
        return (self.user(users) * self.item(items)).sum(1) + self.dense(dense).squeeze(1)


class History(nn.Module):
    """The table of items is shared: a row has a bag of items, a weighted one, a sequence and an item of its own."""

    def __init__(self, mode: str = "mean") -> None:
        super().__init__()
        self.item = final_table(ITEMS, padding_idx=0)
        self.bag = cce.embeddings.EmbeddingBag(self.item, mode=mode)
        self.weighted = cce.embeddings.EmbeddingBag(self.item, mode="sum", include_last_offset=True)
        self.factors = nn.Parameter(torch.randn(4, DIM, generator=torch.Generator().manual_seed(2)))

    def forward(self, bags: Tensor, items: Tensor, weights: Tensor) -> Tensor:
        offsets = torch.arange(0, bags.numel() + 1, bags.shape[1])
        parts = self.bag(bags), self.weighted(bags.reshape(-1), offsets, weights.reshape(-1)), self.item(bags).sum(1)
        vectors = torch.stack([*parts, self.item(items)], 1)  # (rows, 4, DIM)
        return (torch.tanh(vectors) * self.factors).sum((1, 2)).unsqueeze(1)


class Features(nn.Module):
    """A collection, looked up by name with bags of users."""

    def __init__(self, pooling: str = "mean") -> None:
        super().__init__()
        self.tables = cce.EmbeddingCollection({"user": USERS, "item": ITEMS}, DIM, pooling=pooling, padding_idx=3)
        self.tables.tables["user"] = final_table(USERS, padding_idx=3)
        self.tables.tables["item"] = final_table(ITEMS, seed=1, padding_idx=3)

    def forward(self, bags: Tensor, items: Tensor, _: Tensor) -> Tensor:
        offsets = torch.arange(0, bags.numel() + 1, bags.shape[1])
        vectors = self.tables({"user": (bags.reshape(-1), offsets), "item": items})
        return 3 * torch.tanh(vectors.prod(1).sum(1))


def rating_rows(num_rows: int, seed: int, *, signal: float = 3.0) -> list[Tensor]:
    """Users and items fall into six clusters each; the dense input matters too."""
    planted = torch.Generator().manual_seed(0)
    users, items = (
        torch.randn(6, DIM, generator=planted)[torch.randint(6, (size,), generator=planted)] for size in (USERS, ITEMS)
    )
    g = torch.Generator().manual_seed(seed)
    user, item = (torch.randint(size, (num_rows,), generator=g) for size in (USERS, ITEMS))
    dense = torch.randn(num_rows, 1, generator=g)
    logits = signal * ((users[user] * items[item]).sum(1) + dense.squeeze(1)) / 2
    return [user, item, dense, torch.bernoulli(logits.sigmoid(), generator=g)]


def history_rows(num_rows: int, seed: int = 0) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    bags = torch.randint(8, (num_rows, 3), generator=g)  # few ids: many are in a bag twice, and some are padding
    items = torch.randint(ITEMS, (num_rows,), generator=g)
    weights = torch.rand(num_rows, 3, generator=g)
    return [bags, items, weights, torch.randint(2, (num_rows,), generator=g).float()]


def loader(rows: list[Tensor], batch_size: int = 500, **options) -> DataLoader:
    return DataLoader(TensorDataset(*rows), batch_size=batch_size, **options)


def bce(model: nn.Module, rows: list[Tensor]) -> float:
    *inputs, labels = rows
    with torch.no_grad():
        return float(nn.functional.binary_cross_entropy_with_logits(model(*inputs).reshape(-1), labels))


def quadratics_of(model: nn.Module, rows: list[Tensor], name: str, *, batch_size: int = 7):
    """Of all ids of a table, from one pass."""
    refit = Refit(Source(model, loader(rows, batch_size)))
    return dict(refit._pass(0, Ranks()))[name]


class Dense(nn.Module):
    """A table written out, of which one vector is another."""

    def __init__(self, table: cce.embeddings.CCEEmbedding, index: int, vector: Tensor) -> None:
        super().__init__()
        self.weight = table.to_dense().detach().index_put((torch.tensor([index]),), vector.unsqueeze(0))
        self.scale = nn.Parameter(torch.ones(()))  # bags ask for the dtype of parameters
        self.padding_idx, (self.num_embeddings, self.embedding_dim) = table.padding_idx, self.weight.shape

    def forward(self, ids: Tensor) -> Tensor:
        return self.weight[ids]


def with_table(model: nn.Module, name: str, table: nn.Module) -> nn.Module:
    """A copy of the model with another table, wherever the old one is."""
    model = copy.deepcopy(model)
    old = model.get_submodule(name)
    for module in list(model.modules()):
        for child, found in list(module._modules.items()):
            if found is old:
                module._modules[child] = table
    return model


@pytest.mark.parametrize("make", [lambda: History("mean"), lambda: History("sum")])
def test_gradients_and_hessians_are_those_of_autograd_where_ids_occur_several_times_in_a_row(make):
    """An id's Jacobian in a row is the sum over its occurrences, in bags and sequences and alone."""
    model, rows = make(), history_rows(60)
    name = "item" if isinstance(model, History) else "tables.tables.user"
    *inputs, labels = rows
    found, table = quadratics_of(model, rows, name), model.get_submodule(name)
    hessians = unpack(found.packed, DIM)
    torch.testing.assert_close(found.points, table.to_dense().detach())
    for index in (1, 5, 7):

        def outputs(vector, index=index):
            return with_table(model, name, Dense(table, index, vector))(*inputs).reshape(-1)

        vector = found.points[index]
        jacobian = torch.autograd.functional.jacobian(outputs, vector)  # (rows, DIM)
        probability = outputs(vector).sigmoid()
        reads = (inputs[0] == index).any(1) | ((inputs[1] == index) & isinstance(model, History))
        assert found.num_rows[index] == reads.sum()
        torch.testing.assert_close(found.gradients[index], jacobian.T @ (probability - labels), rtol=1e-4, atol=1e-5)
        weighted = (probability * (1 - probability)).unsqueeze(1) * jacobian
        torch.testing.assert_close(hessians[index], jacobian.T @ weighted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_size", [30, 200])
def test_an_id_is_counted_once_in_a_row(batch_size):
    model, rows = History(), history_rows(200)
    found = quadratics_of(model, rows, "item", batch_size=batch_size)
    for index in range(1, ITEMS):
        assert found.num_rows[index] == ((rows[0] == index).any(1) | (rows[1] == index)).sum()
    assert found.num_rows[0] == 0  # padding
    assert found.moving > 1


@pytest.mark.slow
def test_pointers_by_chance_become_as_good_as_the_truth_nearly():
    rows, held_out, model = rating_rows(20_000, 1), rating_rows(20_000, 2), Ratings()
    with torch.no_grad():
        model.dense.weight.fill_(1.5)
    optimizer = torch.optim.Adam([model.user.codebook, model.item.codebook], 0.05)
    for some in loader(rows):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(*some[:-1]), some[-1]).backward()
        optimizer.step()
    network = {name: value.clone() for name, value in model.state_dict().items() if name.startswith("dense")}
    scores = []
    report = cce.refit(model, loader(rows), validate=lambda: scores.append(bce(model, held_out)) or scores[-1])
    assert [each.score for each in report.rounds] == scores
    assert len(scores) == 5
    assert report.stopped == "all rounds are done"
    assert bce(model, held_out) == min(scores) == scores[report.kept] == scores[-1]
    assert min(scores) < scores[0] - 0.25
    assert all(torch.equal(model.state_dict()[name], value) for name, value in network.items())
    assert model.training
    assert not model.user._forward_hooks
    assert "kept" in str(report)


@pytest.mark.slow
def test_labels_by_chance_stay_at_the_constant():
    rows, held_out, model = rating_rows(6_000, 1, signal=0), rating_rows(20_000, 2, signal=0), Ratings()
    nn.init.zeros_(model.dense.weight)
    cce.refit(model, loader(rows))
    assert bce(model, held_out) < math.log(2) + 0.01


@pytest.mark.slow
def test_any_twice_differentiable_loss_of_batches_of_any_form():
    """Squared errors with weights; outputs are of shape (rows, 1), and batches are dictionaries."""
    model = History("sum")
    bags, items, weights, _ = history_rows(4_000)
    vectors = torch.randn(ITEMS, generator=torch.Generator().manual_seed(0))
    goals = vectors[items]

    def batches():
        for start in range(0, 4_000, 512):
            some = slice(start, start + 512)
            yield {"inputs": (bags[some], items[some], weights[some]), "goal": goals[some], "weight": weights[some, 0]}

    def forward(batch):
        return model(*batch["inputs"]), (batch["goal"], batch["weight"])

    def loss(outputs, target):
        return target[1] * (outputs - target[0]) ** 2

    def total():
        with torch.no_grad():
            return sum(float(loss(forward(b)[0].reshape(-1), forward(b)[1]).sum()) for b in batches())

    before = total()
    cce.refit(model, batches, forward=forward, loss=loss, validate=total, rounds=3)  # the best round is kept
    assert total() < 0.7 * before


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def is_as_before(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_if_no_round_is_better_the_tables_are_those_of_before():
    rows, model = rating_rows(1_000, 1), Ratings()
    before, scores = state(model), iter([0.1, 0.3, 0.2])
    report = cce.refit(model, loader(rows), validate=lambda: next(scores), rounds=2)
    assert report.kept == 0
    assert is_as_before(model, before)


@pytest.mark.slow
def test_an_interruption_leaves_the_best_tables_so_far():
    rows, model = rating_rows(1_000, 1), Ratings()
    before, states = state(model), []

    def validate():
        states.append(state(model))
        if len(states) == 3:
            raise KeyboardInterrupt
        return -len(states)

    report = cce.refit(model, loader(rows), validate=validate)
    assert (report.kept, report.stopped) == (1, "interrupted")
    assert is_as_before(model, states[1])
    assert not is_as_before(model, before)
    report = cce.refit(model, lambda: broken(rows))
    assert (report.kept, report.stopped) == (0, "interrupted")
    assert is_as_before(model, states[1])
    assert not model.user._forward_hooks


def broken(rows):
    yield [each[:100] for each in rows]
    raise KeyboardInterrupt


def test_the_order_of_rows_does_not_matter():
    rows, model = rating_rows(3_000, 1), Ratings()
    order = torch.randperm(3_000, generator=torch.Generator().manual_seed(0))
    one, other = (quadratics_of(model, each, "user") for each in (rows, [part[order] for part in rows]))
    for name in ("gradients", "packed", "num_rows"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-4, atol=1e-4)


class Twice(nn.Module):
    """Two outputs for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.user = final_table(USERS)
        self.top = nn.Linear(DIM, 2)

    def forward(self, users: Tensor) -> Tensor:
        return self.top(self.user(users))


def test_models_that_cannot_be_refitted_are_told_why():
    rows, model = rating_rows(100, 1), Ratings()
    with pytest.raises(ValueError, match=r"one output for each row to be refitted, got outputs of shape \(100, 2\)"):
        cce.refit(Twice(), [(rows[0], rows[3])])
    with pytest.raises(ValueError, match=r"must give outputs with gradients to be refitted, got detached ones"):
        cce.refit(model, loader(rows), forward=lambda batch: (model(*batch[:-1]).detach(), batch[-1]))
    with pytest.raises(ValueError, match=r'tables of method "cce" to be refitted, got none'):
        cce.refit(nn.Linear(2, 2), [rows])
    model.item = cce.embeddings.CCEEmbedding(ITEMS, DIM)
    with pytest.raises(ValueError, match=r"finalized before they are refitted .* got int8 rows in \['item'\]"):
        cce.refit(model, [rows])
    ratings, history = Ratings(), History()
    history.bag = cce.embeddings.EmbeddingBag(history.item, mode="max")
    with pytest.raises(ValueError, match="in a bag of sums or means to be refitted, got mode='max'"):
        cce.refit(history, [history_rows(10)])
    with pytest.raises(ValueError, match=r"table 'user' must be looked up .* model's outputs, 50, got 100"):
        cce.refit(ratings, [rows], forward=lambda batch: (ratings(*batch[:3])[:50], batch[3][:50]))


def test_inputs_that_cannot_be_used_are_told_why():
    rows, model = rating_rows(100, 1), Ratings()
    with pytest.raises(TypeError, match=r"batches must be iterable again and again, or a function .* got <generator"):
        cce.refit(model, (each for each in [rows]))
    with pytest.raises(TypeError, match="batches must be tuples of inputs and a target, got dict: forward=lambda"):
        cce.refit(model, [{"users": rows[0]}])
    for name, result in {
        "validate": "a loss",
        "loss": "the loss of each row",
        "forward": "outputs and targets",
    }.items():
        with pytest.raises(TypeError, match=f"{name} must be a function that returns {result}, got 3"):
            cce.refit(model, [rows], **{name: 3})
    before = state(model)
    for scores in ([math.nan], [0.5, math.inf]):
        given = iter(scores)
        with pytest.raises(ValueError, match=r"validate must return a finite loss on every process, got (nan|inf)"):
            cce.refit(model, [rows], validate=lambda given=given: next(given))
        assert is_as_before(model, before)
    with pytest.raises(ValueError, match="batches must have rows, got none"):
        cce.refit(model, [])
    with pytest.raises(ValueError, match=r"loss must give one value for each of \d+ rows .* got shape \(\)"):
        cce.refit(model, [rows], loss=nn.functional.mse_loss)
    with pytest.raises(ValueError, match=r"loss must be twice differentiable in .* got a constant slope"):
        cce.refit(model, [rows], loss=lambda outputs, target: outputs * target)
    with pytest.raises(ValueError, match=r"targets must lie in \[0, 1\] for the default loss, got 5"):
        cce.refit(model, [[*rows[:3], torch.full((100,), 5.0)]])


def test_outputs_that_look_like_probabilities_are_warned_of():
    rows, model = rating_rows(300, 1), Ratings()
    with pytest.warns(UserWarning, match=r"outputs all lie in \[0, 1\], as after a sigmoid"):
        cce.refit(model, [rows], forward=lambda batch: (model(*batch[:3]).sigmoid(), batch[3]), rounds=1)


def test_auto_stops_after_a_round_that_gains_too_little():
    rows, model = rating_rows(1_000, 1), Ratings()
    before, scores = state(model), iter([0.5, 0.49999])
    report = cce.refit(model, loader(rows), validate=lambda: next(scores))
    assert len(report.rounds) == 2
    assert report.stopped == "the first round gained too little"
    assert report.kept == 1  # less is better, however little
    assert not is_as_before(model, before)


@pytest.mark.parametrize("rounds", ["often", 0, -1])
def test_rounds_are_auto_or_a_number(rounds):
    with pytest.raises(ValueError, match=r"rounds must"):
        cce.refit(Ratings(), [rating_rows(100, 1)], rounds=rounds)
