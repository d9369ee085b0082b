"""What a loop of one's own does with an optimizer, int8 rows and all."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

import cce
from cce.embeddings import seen_before

NUM_IDS, DIM = 2000, 8


class Model(nn.Module):
    """Two tables, one of which is looked up twice, a bag, and a small network."""

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(NUM_IDS, DIM), nn.Embedding(NUM_IDS, DIM)
        self.history = nn.EmbeddingBag(NUM_IDS, DIM, mode="mean")
        self.net = nn.Sequential(nn.Linear(DIM, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, ids):
        user, item, past = ids[:, 0], ids[:, 1], ids[:, 2:]
        vectors = self.user(user) * self.item(item) + self.item(past[:, 0]) + self.history(past)
        return self.net(vectors).squeeze(1)


def make_model(**options):
    torch.manual_seed(0)
    model = Model()
    cce.compress(model, min_params=1000, names="*", seed=0, **options)
    return model


def batch(step, size=128):
    generator = torch.Generator().manual_seed(step)
    ids = (torch.rand(size, 5, generator=generator) ** 3 * NUM_IDS).long()
    return ids, (ids[:, :2].sum(1) % 2).float()


def backward(model, step, scale=1.0):
    ids, labels = batch(step)
    (cross_entropy(model(ids), labels) * scale).backward()


def train(model, optimizer, steps, scheduler=None):
    for step in steps:
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def assert_equal(one, other):
    one, other = one.state_dict(), other.state_dict()
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def tables(model):
    return [model.user, model.item, model.history.table]


@pytest.fixture
def trained():
    model = make_model()
    train(model, cce.optim.Adam(model, lr=1e-2), range(12))
    return model


def test_one_optimizer_moves_rows_and_network(trained):
    fresh = make_model()
    assert not torch.equal(trained.net[0].weight, fresh.net[0].weight)
    assert all(table.rows.num_rows > 100 for table in tables(trained))
    assert all(table.rows.steps == 12 for table in tables(trained))


@pytest.mark.parametrize("given", ["model", "parameters", "groups"])
def test_it_takes_a_model_or_what_torch_takes(given, trained):
    model = make_model()
    of_net = list(model.net.parameters())
    rest = [parameter for parameter in model.parameters() if all(parameter is not own for own in of_net)]
    params = {"model": model, "parameters": model.parameters(), "groups": [{"params": rest}, {"params": of_net}]}[given]
    train(model, cce.optim.Adam(params, lr=1e-2), range(12))
    assert_equal(model, trained)


def test_a_group_has_its_own_learning_rate_and_rows_of_rate_zero_stay():
    model = make_model(min_count=1)
    train(model, cce.optim.Adam(model, lr=1e-2), range(3))
    before = [table.to_dense() for table in tables(model)]
    of_net = list(model.net.parameters())
    rest = [parameter for parameter in model.parameters() if all(parameter is not own for own in of_net)]
    optimizer = cce.optim.Adam([{"params": rest, "lr": 0.0}, {"params": of_net}], lr=1e-2)
    optimizer.zero_grad()
    backward(model, 2)
    optimizer.step()
    for table, old in zip(tables(model), before, strict=True):
        assert (table.to_dense() - old).abs().max() <= table.rows.scale + 1e-6  # rounding at random


def test_schedulers_of_torch_work():
    model, other = make_model(), make_model()
    optimizer = cce.optim.Adam(model, lr=1e-2)
    train(model, optimizer, range(8), torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8))
    by_hand = cce.optim.Adam(other, lr=1e-2)
    for step in range(8):
        by_hand.param_groups[0]["lr"] = 1e-2 * (1 + math.cos(math.pi * step / 8)) / 2
        train(other, by_hand, [step])
    for one, two in zip(tables(model), tables(other), strict=True):
        assert (one.to_dense() - two.to_dense()).abs().mean() < 2 * one.rows.scale


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Adagrad", "SGD"])
def test_the_network_moves_as_by_torch(name):
    """Where tables are frozen, so that they do not matter."""
    model = make_model(counts={name: torch.zeros(NUM_IDS) for name in ("user", "item", "history")})
    other = copy.deepcopy(model)
    train(model, getattr(cce.optim, name)(model, lr=1e-2), range(4))
    network = other.net.parameters()
    theirs = getattr(torch.optim, name)(network, lr=1e-2)
    cce.optim.Adam([table.anchor for table in tables(other)])  # or backward would say that nobody moves the rows
    train(other, theirs, range(4))
    for one, two in zip(model.net.parameters(), other.net.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", ["AdamW", "Adagrad", "SGD"])
def test_rows_learn_beside_any_of_them(name):
    model = make_model()
    train(model, getattr(cce.optim, name)(model, lr=1e-2), range(12))
    assert all(table.rows.num_rows > 100 for table in tables(model))
    assert model.user.rows.live.record["value_count"] > 0


def test_gradients_of_several_passes_add_up(trained):
    model = make_model()
    optimizer = cce.optim.Adam(model, lr=1e-2)
    for step in range(12):
        optimizer.zero_grad()
        ids, labels = batch(step)
        for part in (slice(0, 40), slice(40, 128)):
            share = (part.stop - part.start) / 128
            (cross_entropy(model(ids[part]), labels[part]) * share).backward()
        optimizer.step()
    for one, two in zip(tables(model), tables(trained), strict=True):
        assert one.rows.num_rows == two.rows.num_rows
        assert (one.to_dense() - two.to_dense()).abs().max() <= 3 * one.rows.scale


def dense_norm(model, step):
    """The norm of the gradients of everything that a step would move, by full tables."""
    dense = Model()
    dense.net.load_state_dict(model.net.state_dict())
    pairs = list(zip(tables(model), (dense.user, dense.item, dense.history), strict=True))
    with torch.no_grad():
        for table, full in pairs:
            full.weight.copy_(table.to_dense())
    backward(dense, step)
    total = sum(float(parameter.grad.square().sum()) for parameter in dense.net.parameters())
    ids, _ = batch(step)
    occurring = {id(model.user): ids[:, 0], id(model.item): ids[:, 1:3], id(model.history.table): ids[:, 2:]}
    for table, full in pairs:
        counts = torch.bincount(occurring[id(table)].reshape(-1), minlength=NUM_IDS)
        moved = (table.rows.find(torch.arange(NUM_IDS)) > 0) | (
            seen_before(table.rows, torch.arange(NUM_IDS)) + counts >= table.policy.min_count
        )
        total += float(full.weight.grad[moved].square().sum())
    return total**0.5


def test_the_norm_that_torch_clips_by_has_the_rows_in_it(trained):
    trained.zero_grad()
    cce.optim.Adam(trained)
    backward(trained, 50)
    norm = nn.utils.clip_grad_norm_(trained.parameters(), 1e9)
    assert float(norm) == pytest.approx(dense_norm(trained, 50), rel=1e-4)


def test_clipped_gradients_are_those_of_a_smaller_loss():
    model, other = make_model(), make_model()
    for each, is_clipped in ((model, True), (other, False)):
        optimizer = cce.optim.SGD(each, lr=1e-2, row_lr=1e-2)
        train(each, optimizer, range(6))
        optimizer.zero_grad()
        backward(each, 7, 1.0 if is_clipped else 0.25)
        if is_clipped:
            norm = float(nn.utils.get_total_norm([p.grad for p in each.parameters() if p.grad is not None]))
            nn.utils.clip_grad_norm_(each.parameters(), 0.25 * norm)
        optimizer.step()
    for one, two in zip(tables(model), tables(other), strict=True):
        assert (one.to_dense() - two.to_dense()).abs().max() <= 2 * one.rows.scale


def test_a_gradient_scaler_changes_nothing(trained):
    model, scaler = make_model(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = cce.optim.Adam(model, lr=1e-2)
    for step in range(12):
        optimizer.zero_grad()
        ids, labels = batch(step)
        scaler.scale(cross_entropy(model(ids), labels)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert_equal(model, trained)


def test_a_gradient_scaler_skips_a_step_that_overflows():
    model, scaler = make_model(), torch.amp.GradScaler("cpu", init_scale=3e38)
    optimizer = cce.optim.Adam(model, lr=1e-2)
    before = copy.deepcopy(model)
    ids, labels = batch(0)
    scaler.scale(100 * cross_entropy(model(ids), labels)).backward()
    scaler.step(optimizer)
    assert_equal(model, before)


def test_bf16_autocast_and_half_models():
    model = make_model()
    optimizer = cce.optim.Adam(model, lr=1e-2)
    for step in range(4):
        optimizer.zero_grad()
        ids, labels = batch(step)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(ids)
        cross_entropy(logits.float(), labels).backward()
        optimizer.step()
    assert model.user.rows.num_rows > 1
    half = make_model().to(torch.bfloat16)
    optimizer = cce.optim.Adam(half, lr=1e-2)
    for step in range(4):
        optimizer.zero_grad()
        ids, labels = batch(step)
        logits = half(ids)
        assert logits.dtype is torch.bfloat16
        cross_entropy(logits.float(), labels).backward()
        optimizer.step()
    assert half.user.rows.num_rows == model.user.rows.num_rows


def test_zeroed_gradients_move_nothing(trained):
    optimizer = cce.optim.Adam(trained, lr=1e-2)
    before = copy.deepcopy(trained)
    backward(trained, 30)
    trained.zero_grad()
    optimizer.step()
    assert_equal(trained, before)
    backward(trained, 30)
    trained.zero_grad(set_to_none=False)
    backward(trained, 31)
    alone = copy.deepcopy(before)
    other = cce.optim.Adam(alone, lr=1e-2)
    optimizer.step()
    backward(alone, 31)
    other.step()
    assert torch.equal(trained.user.to_dense(), alone.user.to_dense())


def test_a_resumed_loop_is_equal_to_the_bit():
    model = make_model()
    optimizer = cce.optim.Adam(model, lr=1e-2, weight_decay=1e-5)
    train(model, optimizer, range(9))
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(model, optimizer, range(9, 20))
    torch.manual_seed(1)
    resumed = Model()
    cce.compress(resumed, min_params=1000, names="*", seed=7)
    again = cce.optim.Adam(resumed, lr=1e-2, weight_decay=1e-5)
    resumed.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    train(resumed, again, range(9, 20))
    assert_equal(resumed, model)


def test_an_optimizer_that_is_copied_with_its_model_goes_on():
    model = make_model()
    optimizer = cce.optim.Adam(model, lr=1e-2)
    train(model, optimizer, range(5))
    both = copy.deepcopy((model, optimizer))
    train(model, optimizer, range(5, 9))
    train(*both, range(5, 9))
    assert_equal(model, both[0])


def test_two_models_with_an_optimizer_each(trained):
    one, two = make_model(), make_model()
    optimizers = cce.optim.Adam(one, lr=1e-2), cce.optim.Adam(two, lr=1e-2)
    for step in range(12):
        for model, optimizer in zip((one, two), optimizers, strict=True):
            train(model, optimizer, [step])
    assert_equal(one, trained)
    assert_equal(two, trained)


def test_an_average_of_models_is_rejected_where_it_would_be_wrong(trained):
    average = torch.optim.swa_utils.AveragedModel(trained, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    average.update_parameters(trained)
    ids, _ = batch(0)
    assert torch.equal(average(ids), trained(ids))
    train(trained, cce.optim.Adam(trained, lr=1e-2), range(3))
    average.update_parameters(trained)
    with pytest.raises(ValueError, match=r"int8 rows of table 'user' must be those of one model, got an average"):
        average(ids)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own, wherever a graph breaks
def test_a_compiled_model_trains_the_same(trained):
    model = make_model()
    compiled = torch.compile(model, backend="eager")
    optimizer = cce.optim.Adam(model, lr=1e-2)
    for step in range(12):
        optimizer.zero_grad()
        ids, labels = batch(step)
        cross_entropy(compiled(ids), labels).backward()
        optimizer.step()
    assert_equal(model, trained)


def no_optimizer(_):
    return None


@pytest.mark.parametrize(
    ("early", "late"),
    [
        (no_optimizer, no_optimizer),
        (torch.optim.Adam, no_optimizer),
        (cce.optim.Adam, no_optimizer),
        (no_optimizer, torch.optim.Adam),
    ],
)
def test_rows_that_nobody_moves_are_named_at_the_first_backward(early, late):
    torch.manual_seed(0)
    model = Model()
    early(model.parameters())
    cce.compress(model, min_params=1000, names="*", seed=0)
    late(model.parameters())
    with pytest.raises(
        RuntimeError, match=r"table '\w+' trains as int8 rows, which no optimizer moves: make one of cce"
    ):
        backward(model, 0)


def spoil(_module, _ids, vectors):
    """A forward hook: gradients of these vectors are NaN."""
    vectors.register_hook(lambda gradient: gradient * math.nan)


@pytest.mark.parametrize("name", ["user", "item", "history"])
def test_gradients_of_one_table_that_are_not_finite_change_nothing_and_the_table_is_named(name, trained):
    optimizer = cce.optim.Adam(trained, lr=1e-2)
    before = copy.deepcopy((trained, optimizer.state_dict()))
    handle = trained.get_submodule(name).register_forward_hook(spoil)
    backward(trained, 3)
    handle.remove()
    wanted = rf"gradients of table '{name}' must be finite, got NaN or inf; no row was changed"
    with pytest.raises(ValueError, match=wanted):
        optimizer.step()
    assert_equal(trained, before[0])
    optimizer.zero_grad()
    twin, again = before[0], cce.optim.Adam(before[0], lr=1e-2)
    again.load_state_dict(before[1])
    for model, own in ((trained, optimizer), (twin, again)):  # a loop that catches the error goes on
        train(model, own, [4])
    assert_equal(trained, twin)


def test_a_step_between_a_lookup_and_its_backward_pass_gives_no_id_a_second_row():
    table = cce.embeddings.CCEEmbedding(1000, 4)
    optimizer = cce.optim.Adam(table, lr=1e-2)
    for ids in [torch.arange(8)] * 8 + [torch.arange(11)]:  # rows of the last three are not in the map
        table(ids).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    early, late = table(torch.tensor([11])), table(torch.tensor([11]))
    late.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    early.sum().backward()
    optimizer.step()
    assert table.rows.num_rows == 13
    assert table.rows.num_recent == len(table.rows.recent.used()[0])


def test_the_state_of_rows_of_another_width_is_rejected_before_anything_is_loaded():
    narrow, wide = (cce.optim.Adam(cce.embeddings.CCEEmbedding(1000, dim), lr=1e-2) for dim in (4, 64))
    before = wide.state_dict()
    with pytest.raises(ValueError, match=r"squares of a table of 1,000 ids must be \(35, 64\) .*, got \(35, 4\)"):
        wide.load_state_dict(narrow.state_dict())
    assert all(torch.equal(wide.state_dict()["state"][0][name], value) for name, value in before["state"][0].items())
