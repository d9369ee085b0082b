"""`cce.refit` for models of one's own: hooks, bags, shared tables, losses, loaders, rounds."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import cce
from cce.reclustering import Refit, next_round
from cce.reclustering.refit.blocks import unpack
from cce.reclustering.refit.hooks import LookupHooks, Target
from cce.reclustering.refit.passes import SharedPass
from cce.reclustering.refit.sources import ALL_ROWS, Fold, Selection, Source

DIM, USERS, ITEMS = 4, 60, 40


def final_table(num_embeddings: int, *, seed: int = 0, **options) -> cce.embeddings.CCEEmbedding:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.full((num_embeddings,), 2)
    options = {"num_columns": 2, "num_rows": 8, "start_scale": 0.3} | options
    table = cce.embeddings.CCEEmbedding(num_embeddings, DIM, counts=counts, generator=generator, **options)
    table.finalize(generator=generator)
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


def make_pass(model: nn.Module, rows: list[Tensor], names: dict[str, Tensor], *, batch_size: int = 7):
    source = Source(model, loader(rows, batch_size), forward=None, loss=None)
    hooks = LookupHooks(model, source.tables)
    targets = [
        Target(name, ids, source.tables[name](ids).detach(), source.tables[name].num_embeddings, DIM)
        for name, ids in names.items()
    ]
    return SharedPass(source, hooks, targets, Selection())


class Dense(nn.Module):
    """A table written out, of which one vector is another."""

    def __init__(self, table: cce.embeddings.CCEEmbedding, index: int, vector: Tensor) -> None:
        super().__init__()
        self.weight = table.to_dense().detach().index_put((torch.tensor([index]),), vector.unsqueeze(0))
        self.scale = nn.Parameter(torch.ones(()))  # bags ask for the dtype of parameters
        self.padding_idx, (self.num_embeddings, self.embedding_dim) = table.padding_idx, self.weight.shape

    def forward(self, ids: Tensor) -> Tensor:
        return self.weight[ids]


def full_table(table: cce.embeddings.CCEEmbedding, index: int, vector: Tensor) -> cce.embeddings.FullEmbedding:
    full = cce.embeddings.FullEmbedding(table.num_embeddings, DIM, padding_idx=table.padding_idx)
    full.fit_to(Dense(table, index, vector).weight)
    return full


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
    model, rows, ids = make(), history_rows(60), torch.tensor([1, 5, 7])
    *inputs, labels = rows
    shared = make_pass(model, rows, {"item": ids})
    (found,) = shared.quadratics([shared.targets[0].present])
    packed = unpack(found.packed, DIM)
    for place, name in enumerate(ids.tolist()):

        def outputs(vector, name=name):
            return with_table(model, "item", Dense(model.item, name, vector))(*inputs).reshape(-1)

        vector = shared.targets[0].present[place]
        jacobian = torch.autograd.functional.jacobian(outputs, vector)  # (rows, DIM)
        probability = outputs(vector).sigmoid()
        reads = (inputs[0] == name).any(1) | (inputs[1] == name)
        losses = nn.functional.binary_cross_entropy_with_logits(outputs(vector), labels, reduction="none")
        torch.testing.assert_close(found.losses[place], losses[reads].sum())
        torch.testing.assert_close(found.gradients[place], jacobian.T @ (probability - labels), rtol=1e-4, atol=1e-5)
        weighted = (probability * (1 - probability)).unsqueeze(1) * jacobian
        torch.testing.assert_close(packed[place], jacobian.T @ weighted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [History, Features, lambda: Features("sum")])
def test_moved_vectors_are_those_of_another_table(make):
    """Bags by name in a collection, with padding, too."""
    model, rows = make(), history_rows(60)
    *inputs, labels = rows
    name = "item" if isinstance(model, History) else "tables.tables.user"
    for index in (1, 6):
        shared = make_pass(model, rows, {name: torch.tensor([index])})
        vector = torch.randn(DIM, generator=torch.Generator().manual_seed(index))
        (found,) = shared.losses([vector.unsqueeze(0)])
        moved = with_table(model, name, full_table(model.get_submodule(name), index, vector))
        with torch.no_grad():
            outputs = moved(*inputs).reshape(-1)
        losses = nn.functional.binary_cross_entropy_with_logits(outputs, labels, reduction="none")
        reads = (inputs[0] == index).any(1) | ((inputs[1] == index) & isinstance(model, History))
        torch.testing.assert_close(found[0], losses[reads].sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fold", [ALL_ROWS, Fold(1, 3)])
def test_an_id_is_counted_once_in_a_row_of_the_fold(fold):
    model, rows, ids = History(), history_rows(200), torch.arange(ITEMS)
    source = Source(model, lambda: iter(loader(rows, 30)), forward=None, loss=None)
    target = Target("item", ids, model.item(ids).detach(), ITEMS, DIM)
    shared = SharedPass(source, LookupHooks(model, source.tables), [target], Selection(fold))
    (found,) = shared.quadratics([target.present])
    some = fold.numbers(200)
    for index in range(1, ITEMS):
        assert found.num_rows[index] == ((rows[0] == index).any(1) | (rows[1] == index))[some].sum()
    assert found.num_rows[0] == 0  # padding
    assert len(source) == 200


class Offsets(nn.Module):
    """Bags of one id each by offsets: all inputs are as long as there are rows, and yet none can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = cce.embeddings.EmbeddingBag(final_table(ITEMS), mode="sum")

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        return self.bag(ids, offsets).sum(1)


@pytest.mark.parametrize("can_be_cut", [True, False])
def test_the_model_sees_the_selected_rows_alone_if_a_batch_can_be_cut(can_be_cut):
    rows, fold = rating_rows(300, 1), Fold(1, 3)
    model = Ratings() if can_be_cut else Offsets()
    inputs = rows if can_be_cut else [rows[1], torch.arange(300), rows[3]]
    batches = [[each[:160] for each in inputs], [each[160:] for each in inputs]]
    if not can_be_cut:
        batches = [inputs]
    source = Source(model, batches, forward=None, loss=None)
    name = "item" if can_be_cut else "bag.table"
    table, ids = source.tables[name], torch.arange(ITEMS)
    seen = []
    model.register_forward_hook(lambda *call: seen.append(len(call[2])))
    target = Target(name, ids, table(ids).detach(), ITEMS, DIM)
    shared = SharedPass(source, LookupHooks(model, source.tables), [target], Selection(fold))
    (found,) = shared.quadratics([target.present])
    expected = rows[1][fold.numbers(300)].bincount(minlength=ITEMS)
    assert found.num_rows.tolist() == expected.tolist()
    assert seen[-1] == (len(fold.numbers(300)) if can_be_cut else 300)


@pytest.mark.slow
def test_pointers_by_chance_become_as_good_as_the_truth_nearly():
    rows, held_out, model = rating_rows(20_000, 1), rating_rows(20_000, 2), Ratings()
    with torch.no_grad():
        model.dense.weight.fill_(1.5)
    network = {name: value.clone() for name, value in model.state_dict().items() if name.startswith("dense")}
    scores = []
    report = cce.refit(model, loader(rows), validate=lambda: scores.append(bce(model, held_out)) or scores[-1])
    assert [each.score for each in report.rounds] == scores
    assert len(scores) == 6  # before, a trial, and four others
    assert [each.rows for each in report.rounds] == ["", "all", "part", "part", "part", "all"]
    assert report.stopped == "all rounds are done"
    assert bce(model, held_out) == min(scores) == scores[report.kept]
    assert min(scores) < scores[0] - 0.15
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


@pytest.mark.slow
def test_the_network_is_trained_on_rows_of_its_own():
    rows, model, seen = rating_rows(3_000, 1), Ratings(), []
    cce.refit(model, loader(rows), train_network=seen.append, rounds=3)
    expected = Fold(2, 3).numbers(3_000)
    assert [numbers.tolist() for numbers in seen] == [expected.tolist()] * 2


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


def test_a_loader_that_changes_its_order_is_refused_and_nothing_changes():
    rows, model = rating_rows(1_000, 1), Ratings()
    before = state(model)
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(ValueError, match=r"same order in every pass, got other ids in batch 0: a DataLoader must not"):
        cce.refit(model, loader(rows, shuffle=True, generator=generator))
    sizes = iter([3, 2])

    def fewer():
        return (rows for _ in range(next(sizes)))

    with pytest.raises(ValueError, match="in every pass"):
        cce.refit(model, fewer)
    assert is_as_before(model, before)


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


def test_auto_stops_after_a_trial_that_gains_nothing():
    rows, model = rating_rows(1_000, 1), Ratings()
    before, scores = state(model), iter([0.5, 0.49999])
    report = cce.refit(model, loader(rows), validate=lambda: next(scores))
    assert [each.rows for each in report.rounds] == ["", "all"]
    assert report.stopped == "the trial round did not improve the score"
    assert report.kept == 1  # less is better, however little
    assert not is_as_before(model, before)


@pytest.mark.parametrize(
    ("trial", "stops"), [(-0.8001, False), (-0.80005, True), (-0.8, True), (-0.79995, True), (float("nan"), True)]
)
def test_a_trial_must_gain_by_scores_below_zero_as_well(trial, stops):
    """As of an AUC, of which more is better."""
    assert next_round("auto", [-0.8, trial]).stops == stops


def test_after_a_trial_the_rounds_begin_where_it_began():
    """The trial has seen all labels, so that rounds on parts of the rows must not start from it."""
    rows, model = rating_rows(1_000, 1), Ratings()
    models = [model, copy.deepcopy(model)]
    scores = iter([0.5, 0.4, 0.4, 0.4, 0.4, 0.3])
    cce.refit(models[0], loader(rows), validate=lambda: next(scores))
    refit = Refit(models[1], Source(models[1], loader(rows), forward=None, loss=None))
    before = copy.deepcopy(state(models[1]))
    refit.round(use_all_rows=True, generator=torch.Generator().manual_seed(0))
    models[1].load_state_dict(before)
    refit.priors.clear()
    for turn in range(1, 5):
        refit.round(use_all_rows=turn == 4, generator=torch.Generator().manual_seed(turn << 32))
    assert is_as_before(models[0], state(models[1]))


@pytest.mark.parametrize("rounds", ["often", 0, -1])
def test_rounds_are_auto_or_a_number(rounds):
    with pytest.raises(ValueError, match=r"rounds must"):
        cce.refit(Ratings(), [rating_rows(100, 1)], rounds=rounds)
