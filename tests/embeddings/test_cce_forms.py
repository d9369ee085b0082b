"""The two forms of a `cce` table: what `finalize` keeps, what it changes, and how either is saved, copied and used."""

import copy
import io
import pickle
import shutil

import pytest
import torch
from torch import nn

import cce
from cce.embeddings import Int8Rows
from helpers.draws import seeded
from helpers.final_form import finalize_table

NUM_IDS, DIM = 600, 8


def make(num_ids=NUM_IDS, seed=0, every=2, **options):
    """A table in which each second id has a row, with different counts."""
    table = cce.embeddings.CCEEmbedding(num_ids, DIM, num_rows=16, start_scale=0.5, generator=seeded(seed), **options)
    counts = torch.zeros(num_ids, dtype=torch.int64)
    counts[::every] = 2 + torch.arange(len(counts[::every])) % 7
    table.give_rows(counts)
    return table


def final(**options):
    table = make(**options)
    finalize_table(table, generator=seeded())
    return table


ALL = torch.arange(NUM_IDS)


# -- finalize ----------------------------------------------------------------------------------------------------------


def test_ids_without_a_row_are_zero_in_both_forms_and_the_others_are_rows_of_codebooks():
    table = make()
    before = table.to_dense()
    finalize_table(table, generator=seeded())
    after, pointers = table.to_dense(), table.pointers.store.to_tensor().long()
    assert not before[1::2].any()
    assert not after[1::2].any()
    codebooks = table.codebook.detach().view(4, 16, 2)
    expected = torch.cat([codebooks[column, pointers[:, column]] for column in range(4)], dim=1)
    assert torch.equal(after[::2], expected)
    assert (after - before)[::2].square().mean() < 0.1 * before[::2].square().mean()


@pytest.mark.parametrize("unseen", ["neutral", "trained"])
def test_ids_without_a_row_have_one_vector_which_is_the_same_in_both_forms(unseen):
    table = make(unseen=unseen, every=3)
    optimizer = cce.optim.Adam(table, lr=0.1)
    for _ in range(5):
        (table(ALL[:300]) - 1).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    vectors = table.to_dense()
    without = vectors[table.row_map(ALL) == 0]
    assert len(without) == 400
    assert torch.equal(without, without[:1].expand_as(without))
    assert bool(without.any()) == (unseen == "trained")
    finalize_table(table, num_columns=DIM, num_rows=256)  # a column for each value: exact
    torch.testing.assert_close(table.to_dense(), vectors)


def test_names_and_objects_of_parameters_are_the_same_and_hooks_survive():
    table, seen = make(), []
    table.register_forward_hook(lambda *_: seen.append(1))
    before = dict(table.named_parameters())
    finalize_table(table)
    after = dict(table.named_parameters())
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)
    table(ALL)
    assert seen == [1]


def test_the_error_that_it_tells_is_the_weighted_mean_squared_error():
    table = make()
    before, weights = table.to_dense()[::2], table.rows.occurrences()[1:].clamp(min=1)
    error = finalize_table(table, generator=seeded())
    errors = (table.to_dense()[::2] - before).square().mean(1).double()
    assert error == pytest.approx(float((errors * weights).sum() / weights.sum()), rel=1e-5)


def test_counts_say_where_the_codebook_is_near():
    errors = []
    for often in (slice(0, 100), slice(100, None)):
        table = make(every=1)
        before, counts = table.to_dense(), torch.ones(NUM_IDS)
        counts[often] = 10_000
        finalize_table(table, counts=counts, generator=seeded())
        errors.append((table.to_dense() - before)[:100].square().mean())
    assert errors[0] < 0.8 * errors[1]


def test_fewer_ids_than_rows_and_equal_vectors_are_exact_and_never_nan():
    few = cce.embeddings.CCEEmbedding(10, DIM, num_rows=16, start_scale=1.0, generator=seeded())
    few.give_rows(torch.full((10,), 2))
    equal = cce.embeddings.CCEEmbedding(50, DIM, num_rows=16)
    equal.fit_to(torch.ones(50, DIM))
    for table in (few, equal):
        before = table.to_dense()
        assert finalize_table(table, generator=seeded()) == pytest.approx(0, abs=1e-10)
        assert table.codebook.isfinite().all()
        torch.testing.assert_close(table.to_dense(), before)


def test_the_report_counts_ids_and_bytes():
    model = nn.ModuleDict({"user": make(), "net": nn.Linear(2, 2)})
    before = model["user"].nbytes
    report = cce.finalize(model, num_columns=2, num_rows=32, seed=1)
    (table,) = report.tables
    assert (table.name, table.num_ids, table.before, table.after) == ("user", 300, before, model["user"].nbytes)
    assert (model["user"].num_columns, model["user"].num_rows, report.nbytes) == (2, 32, model["user"].nbytes)
    assert "user" in str(report)
    assert "ids with a row" in str(report)
    assert str(cce.finalize(model)) == "no table trains as int8 rows: nothing to finalize"


def test_training_on_moves_codebooks_and_nothing_else():
    table = final()
    state = copy.deepcopy(table.state_dict())
    optimizer = cce.optim.Adam(table, lr=0.1)
    table(ALL).square().sum().backward()
    optimizer.step()
    moved = [name for name, tensor in table.state_dict().items() if not torch.equal(tensor, state[name])]
    assert moved == ["codebook"]
    assert not table(ALL)[1::2].any()


# -- states and copies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saved", [make, final])
@pytest.mark.parametrize(
    "into", [lambda: cce.embeddings.CCEEmbedding(NUM_IDS, DIM), lambda: make(seed=3), lambda: final(seed=3)]
)
def test_a_checkpoint_of_either_form_loads_into_a_table_of_either_form(saved, into):
    source, other = saved(), into()
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.is_final is source.is_final
    assert torch.equal(other.to_dense(), source.to_dense())
    assert (other.anchor.requires_grad, other.codebook.requires_grad) == (not source.is_final, source.is_final)
    if not source.is_final:  # and goes on from there
        other.num_rows = 16
        errors = [finalize_table(table, generator=seeded()) for table in (source, other)]
        assert errors[0] == errors[1]
        assert torch.equal(other.to_dense(), source.to_dense())


def test_a_file_holds_the_rows_that_there_are_and_no_others():
    table = cce.embeddings.CCEEmbedding(100_000, 16, min_count=2)
    table.give_rows(torch.arange(100_000) // 49_999)
    assert table.rows.num_rows - 1 == 2
    file = io.BytesIO()
    torch.save(table.state_dict(), file)
    assert len(file.getvalue()) < 50_000
    assert len(pickle.dumps(table)) < 100_000


def copies(table):
    file = io.BytesIO()
    torch.save(table, file)
    file.seek(0)
    return [copy.deepcopy(table), pickle.loads(pickle.dumps(table)), torch.load(file, weights_only=False)]


@pytest.mark.parametrize("made", [make, final])
def test_copies_train_as_the_table_does(made):
    table, found = made(), []
    for twin in (table, *copies(table)):
        optimizer = cce.optim.SGD(twin, lr=0.5)
        for _ in range(3):
            (twin(ALL) - 1).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        found.append(twin.to_dense())
    assert all(torch.equal(each, found[0]) for each in found)


def test_a_frozen_table_is_copied_finalized_and_stays_frozen():
    table = make().requires_grad_(requires_grad=False)
    twin = copy.deepcopy(table)
    cce.finalize(twin)
    assert not any(parameter.requires_grad for parameter in twin.parameters())
    assert twin(ALL).isfinite().all()


def test_an_average_of_int8_rows_is_rejected_and_one_of_codebooks_is_not():
    for table in (make(), final()):
        averaged = torch.optim.swa_utils.AveragedModel(table)
        for _ in range(2):
            with torch.no_grad():
                for parameter in table.parameters():
                    parameter.add_(1)
            averaged.update_parameters(table)
        if table.is_final:
            assert averaged(ALL).isfinite().all()
        else:
            with pytest.raises(ValueError, match="must be those of one model, got an average"):
                averaged(ALL)


def collection():
    return cce.EmbeddingCollection({"user": 9000, "item": 5000}, DIM, options={"cce": {"min_count": 2}}, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("made", [make, collection])
def test_a_model_compiled_whole_trains_the_same_rows_to_the_bit(made):
    torch.compiler.reset()
    results = []
    for compiles in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(made(), nn.Linear(DIM, 1))
        optimizer = cce.optim.SGD(model, lr=0.1)
        run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiles else model
        for num_ids in (40, 40, 60):  # ids earn rows meanwhile
            run(torch.randint(NUM_IDS, (num_ids, 2))).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append(model.state_dict())
    assert all(torch.equal(tensor, results[1][name]) for name, tensor in results[0].items())


def trained_by_steps(made, *, compiles):
    """The tensors of a model after some steps, by Inductor or without it."""
    torch.compiler.reset()
    torch.manual_seed(0)
    model = nn.Sequential(made(), nn.Linear(DIM, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer, run = cce.optim.Adam(model, lr=0.01), torch.compile(model, fullgraph=True) if compiles else model
    for step in range(6):
        ids = torch.randint(NUM_IDS, (64, 2), generator=seeded(step))
        nn.functional.binary_cross_entropy_with_logits(run(ids).squeeze(2), (ids % 3 == 0).float()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Inductor's own
@pytest.mark.skipif(not shutil.which("g++"), reason="Inductor needs a C++ compiler")
@pytest.mark.parametrize("made", [make, collection, final])
def test_a_model_compiled_by_inductor_trains_either_form(made):
    eager, compiled = (trained_by_steps(made, compiles=compiles) for compiles in (False, True))
    table = "0.rows.records" if made is make else "0.codebook" if made is final else "0.tables.user.rows.records"
    assert not torch.equal(nn.Sequential(made()).state_dict()[table], eager[table])  # it was trained
    for name, tensor in eager.items():
        if tensor.dtype is torch.int8:  # rows, where sums may be rounded to the other side
            assert (tensor.short() - compiled[name].short())[:, :DIM].abs().max() <= 1
        else:
            torch.testing.assert_close(compiled[name], tensor)


@pytest.mark.slow
def test_a_compiled_model_without_an_optimizer_of_rows_says_so():
    torch.compiler.reset()
    run = torch.compile(nn.Sequential(make(), nn.Linear(DIM, 1)), backend="aot_eager", fullgraph=True)
    with pytest.raises(RuntimeError, match=r"600 ids trains as int8 rows, which no optimizer moves"):
        run(ALL[:5]).sum().backward()


# -- bags, padding, collections ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_loops", [True, False])
def test_a_collection_is_its_tables_to_the_bit_mixed_with_full_ones(in_loops, monkeypatch):
    if not in_loops:
        monkeypatch.setattr(Int8Rows, "can_loop", property(lambda rows: False))
    sizes = {"user": 900, "item": 500, "day": 7}
    tables = cce.EmbeddingCollection(sizes, DIM, start_scale=0.5, seed=0)
    apart = copy.deepcopy(tables)
    assert [table.method for table in tables.tables.values()] == ["cce", "cce", "full"]
    ids = torch.stack([torch.randint(size, (300,), generator=seeded(1)) for size in sizes.values()], dim=1)
    optimizers = [cce.optim.SGD(each, lr=0.3) for each in (tables, apart)]

    def single(ids):
        return torch.stack([table(ids[:, at]) for at, table in enumerate(apart.tables.values())], dim=1)

    for _ in range(3):
        for look_up, optimizer in zip((tables, single), optimizers, strict=True):
            (look_up(ids) - 1).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert torch.equal(tables(ids), single(ids))
    assert tables(ids)[:, 0].any()
    for each in (tables, apart):
        cce.finalize(each, num_rows=16, seed=0)
    assert torch.equal(tables(ids), single(ids))


# -- memory and numbering ----------------------------------------------------------------------------------------------


def test_memory_in_training_is_a_byte_for_each_value_and_four_and_half_a_byte_without_a_row():
    table = cce.embeddings.CCEEmbedding(100_000, 16)
    assert table.nbytes <= 0.5 * 100_000 + 100
    table.rows.give_rows(torch.arange(0, 100_000, 5))
    assert table.nbytes <= 20_000 * (16 + 4) + 80_000 * 0.5
    finalize_table(table)
    assert table.nbytes <= 20_000 * 4 + 100_000 * 0.2 + table.codebook.nbytes


def planted(num_rows=40_000, num_users=300, num_items=200):
    """Clicks of tastes: users and items have a kind each, which a click follows; popular items come often."""
    draw = seeded(5)
    users = torch.randint(num_users, (num_rows,), generator=draw)
    items = (torch.rand(num_rows, generator=draw).square() * num_items).long()
    agree = users % 5 == items % 5
    return users, items, (torch.rand(num_rows, generator=draw) < torch.where(agree, 0.9, 0.2)).float()


def numbered(ids, how):
    count = int(ids.max()) + 1
    if how == "by count":
        new = ids.bincount(minlength=count).argsort(descending=True, stable=True).argsort()
    elif how == "by appearance":
        first = torch.full((count,), len(ids)).scatter_reduce(0, ids, torch.arange(len(ids)), "amin")
        new = first.argsort().argsort()
    else:
        new = torch.randperm(count, generator=seeded(9))
    return new[ids]


def validation_loss(how):
    users, items, clicks = planted()
    ids = torch.stack([numbered(users, how), numbered(items, how)], dim=1)
    tables = cce.EmbeddingCollection({"user": 300, "item": 200}, DIM, seed=0)
    optimizer = cce.optim.Adam(tables, lr=0.02)
    loss_of = nn.functional.binary_cross_entropy_with_logits

    def loss(at):
        vectors = tables(ids[at])
        return loss_of((vectors[:, 0] * vectors[:, 1]).sum(1) - 0.5, clicks[at])

    for _ in range(2):
        for batch in torch.arange(36_000).split(250):
            loss(batch).backward()
            optimizer.step()
            optimizer.zero_grad()
    held_out = torch.arange(36_000, 40_000)
    with torch.no_grad():
        trained = float(loss(held_out))
        cce.finalize(tables, num_rows=64)
        return trained, float(loss(held_out))


@pytest.mark.slow
def test_scores_do_not_depend_on_how_ids_are_numbered():
    losses = torch.tensor([validation_loss(how) for how in ("by count", "by appearance", "at random")])
    assert losses.max() < 0.53  # 0.64 for who knows the mean, 0.47 for who knows the tastes
    assert (losses.max(0).values - losses.min(0).values).max() < 0.01


def test_a_finalize_that_fails_changes_neither_tables_nor_their_sizes():
    model = nn.ModuleDict({"seen": cce.embeddings.CCEEmbedding(50, 8), "unseen": cce.embeddings.CCEEmbedding(50, 8)})
    model["seen"].fit_to(torch.randn(50, 8))
    before = model["seen"].to_dense()
    with pytest.raises(ValueError, match="table 'unseen' must have rows to be finalized, got none"):
        cce.finalize(model, num_columns=2, num_rows=16)
    assert [(table.num_columns, table.num_rows) for table in model.values()] == [(4, 256), (4, 256)]
    assert torch.equal(model["seen"].to_dense(), before)
