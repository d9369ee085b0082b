"""`finalize`: one training, every size; the size is chosen by bytes, by bits, by validation or by the error."""

import copy
import itertools

import pytest
import torch
from torch import nn

import cce
from cce.compression.sizes import Shape
from helpers.draws import seeded

DIM = 16


def trained(sizes=(3000, 900), *, num_clusters=20, noise=0.1, **options):
    """Tables whose vectors lie near a few centres."""
    draw, model = seeded(1), nn.ModuleDict()
    for index, size in enumerate(sizes):
        table = cce.embeddings.CCEEmbedding(size, DIM, generator=seeded(index), **options)
        centres = torch.randn(num_clusters, DIM, generator=draw)[torch.randint(num_clusters, (size,), generator=draw)]
        table.fit_to(0.1 * (centres + noise * torch.randn(size, DIM, generator=draw)))
        model[f"t{index}"] = table
    return model


def dense(model):
    return torch.cat([table.to_dense().detach() for table in model.values()])


def state_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def error_of(model, before):
    return float((dense(model) - before).square().sum())


def test_a_budget_below_the_least_names_the_least_and_changes_nothing():
    model = trained()
    before = dense(model)
    with pytest.raises(ValueError, match=r"nbytes must be at least \d+ for these tables, got 10\.") as error:
        cce.finalize(model, nbytes=10)
    assert torch.equal(dense(model), before)
    assert not any(table.is_final for table in model.values())
    least = int(str(error.value).split()[5])
    assert cce.finalize(model, nbytes=least).nbytes == least


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 10, 32, 128])
def test_bits_an_id_are_met(bits):
    model = trained()
    found = cce.finalize(model, bits=bits)
    assert all(table.shape.bits <= bits for table in found.tables)
    assert max(table.shape.bits for table in found.tables) >= min(bits, 32) / 2
    assert found.chosen.bits <= bits


def test_too_few_bits_name_the_least():
    with pytest.raises(ValueError, match=r"bits must be at least 1 for table 't0', got 0\.5\."):
        cce.finalize(trained(), bits=0.5)


def test_int8_rows_are_a_compact_form_to_the_bit():
    model = trained((20_000,))
    before = dense(model)
    found = cce.finalize(model, bits=8 * DIM)
    assert found.tables[0].shape == Shape(DIM, 256)
    assert found.tables[0].distortion == 0
    assert torch.equal(dense(model), before)
    assert found.nbytes < found.before


def test_one_training_serves_all_sizes():
    model = trained()
    state, sizes = state_of(model), []
    for nbytes in (5_000, 20_000, 5_000):
        cce.finalize(model, nbytes=nbytes, seed=0)
        sizes.append(dense(model))
        model.load_state_dict(state)
        assert not any(table.is_final for table in model.values())
        assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(sizes[0], sizes[2])
    assert not torch.equal(sizes[0], sizes[1])


def squared_error(model, before):
    return lambda: float((dense(model) - before).square().mean())


def test_the_smallest_size_within_the_tolerance_is_chosen_and_rows_come_back_in_between():
    model = trained(unseen="trained")
    before, seen = dense(model), []
    loss = squared_error(model, before)

    def validate(given):
        assert given is model
        seen.append([(table.num_columns, table.num_rows, table.is_final) for table in model.values()])
        return loss()

    found = cce.finalize(model, validate=validate, tolerance=1e-4)
    assert found.loss_before == 0
    rows, *probes, first = seen[:4]
    assert len(seen) == sum(size.loss is not None for size in found.curve) + 3 <= 9 < len(found.curve)
    assert [each[2] for each in rows] == [False, False]
    assert [[each[2] for each in probe] for probe in probes] == [[True, False], [False, True]]
    assert all(all(final for _, _, final in each) for each in [first, *seen[4:]])
    assert found.chosen == found.knee in found.curve
    assert found.chosen.loss <= 1e-4 < found.curve[found.curve.index(found.chosen) - 1].loss
    assert loss() == found.chosen.loss
    assert [size.nbytes for size in found.curve] == sorted(size.nbytes for size in found.curve)


def test_a_larger_tolerance_never_gives_a_larger_table():
    model = trained()
    state, sizes = state_of(model), []
    for tolerance in (0, 1e-6, 1e-5, 1e-4, 1e-3):
        model.load_state_dict(state)
        sizes.append(cce.finalize(model, validate=squared_error(model, dense(model)), tolerance=tolerance).nbytes)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_a_table_that_the_loss_minds_gets_the_bytes_though_its_errors_are_the_smaller_ones():
    model = trained((3000, 3000), num_clusters=3000)
    minded = model["t1"]
    with torch.no_grad():
        minded.fit_to(minded.to_dense() / 10)
    before, state, found = minded.to_dense().detach(), state_of(model), {}

    def validate():  # the first table does not matter
        return 1e3 * float((minded.to_dense().detach() - before).square().mean())

    for name, options in {"by error": {}, "by loss": {"validate": validate}}.items():
        model.load_state_dict(state)
        assert cce.finalize(model, nbytes=30_000, seed=0, **options).nbytes <= 30_000
        found[name] = *(table.num_columns * (table.num_rows - 1).bit_length() for table in model.values()), validate()
    assert found["by error"][0] > found["by error"][1]
    assert found["by loss"][0] < found["by loss"][1]
    assert found["by loss"][2] < found["by error"][2] / 2


def test_all_sizes_are_validated_only_if_asked_for_and_a_budget_takes_one():
    model = trained()
    state, found = state_of(model), {}
    for name, options in {"curve": {"curve": True}, "choice": {}, "budget": {"nbytes": 20_000}}.items():
        model.load_state_dict(state)
        validate = squared_error(model, dense(model))
        found[name] = cce.finalize(model, validate=validate, seed=0, **options)
        assert validate() == found[name].chosen.loss
    losses = {name: [size.loss for size in each.curve if size.loss is not None] for name, each in found.items()}
    assert len(losses["curve"]) == len(found["curve"].curve)
    assert losses["curve"] == sorted(losses["curve"], reverse=True)
    assert found["choice"].chosen == found["curve"].chosen
    assert losses["budget"] == [found["budget"].chosen.loss]
    assert found["budget"].knee is None


class StopError(Exception):
    pass


@pytest.mark.parametrize("fails_at", [1, 2, 4])
def test_a_validation_that_fails_leaves_the_rows(fails_at):
    model = trained(unseen="trained")
    before, state, calls = dense(model), state_of(model), itertools.count(1)

    def validate():
        if next(calls) == fails_at:
            raise StopError
        return 0.5

    with pytest.raises(StopError):
        cce.finalize(model, validate=validate)
    assert torch.equal(dense(model), before)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert all((table.num_columns, table.num_rows, table.width) == (4, 256, 4) for table in model.values())


def test_rows_train_on_after_sizes_were_tried():
    model = trained((500, 400))
    twin, ids = copy.deepcopy(model), torch.arange(40)
    with pytest.raises(StopError):
        cce.finalize(model, validate=iter_then_raise([0.5, 0.6]))
    for each in (model, twin):
        optimizer = cce.optim.Adam(each, lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            sum(table(ids).square().sum() for table in each.values()).backward()
            optimizer.step()
    assert torch.equal(dense(model), dense(twin))


def iter_then_raise(losses):
    given = iter(losses)

    def validate():
        for loss in given:
            return loss
        raise StopError

    return validate


def test_a_loss_that_is_no_number_is_rejected():
    with pytest.raises(ValueError, match=r"validate must return a finite loss on every process, got nan\."):
        cce.finalize(trained((50,)), validate=lambda: float("nan"))


def test_without_validation_the_error_has_flattened():
    easy, hard = (cce.finalize(trained((3000,), noise=noise), seed=0) for noise in (0.01, 1.0))
    assert easy.chosen == easy.knee
    assert easy.chosen.distortion < 0.1
    assert easy.nbytes < hard.nbytes / 2


def test_a_size_of_one_table_is_kept_where_it_was_given_beforehand():
    model = nn.ModuleDict({"a": trained(num_rows=32, num_columns=2)["t0"], "b": trained()["t0"]})
    found = cce.finalize(model)
    assert found.tables[0].shape == Shape(2, 32)
    assert found.tables[1].shape != Shape(2, 32)


@pytest.mark.parametrize("options", [{}, {"bits": 8 * DIM}, {"nbytes": 50_000}])
@pytest.mark.parametrize("unseen", ["neutral", "trained"])
@pytest.mark.parametrize("num_ids", [1, 8, 64])
def test_tables_of_few_ids_keep_their_vectors_and_grow_by_a_few_kilobytes(num_ids, unseen, options):
    model = trained((num_ids,), noise=1.0, unseen=unseen)
    before, size = dense(model), model["t0"].nbytes
    found = cce.finalize(model, **options)
    assert found.chosen.distortion < 1e-9
    torch.testing.assert_close(dense(model), before, rtol=1e-5, atol=1e-8)
    assert found.nbytes <= size + 4_000


def test_tables_of_few_ids_have_few_bytes_or_bits_if_no_more_are_given():
    model = trained((12, 40, 300), noise=1.0)
    state = state_of(model)
    assert all(table.shape.bits <= 2 for table in cce.finalize(model, bits=2).tables)
    model.load_state_dict(state)
    assert cce.finalize(model, nbytes=1_000).nbytes <= 1_000


def test_a_table_of_some_hundred_ids_keeps_most_and_does_not_grow():
    model = trained((300,), noise=1.0)
    before, size = dense(model), model["t0"].nbytes
    assert cce.finalize(model, bits=8 * DIM).nbytes <= size
    assert error_of(model, before) <= 0.15 * float(before.square().sum())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nbytes": 10_000, "bits": 8}, "got nbytes and bits"),
        ({"nbytes": 10_000, "num_rows": 8}, "got nbytes and num_columns or num_rows"),
        ({"tolerance": 0.1}, "tolerance goes with validate, got tolerance=0.1 alone"),
        ({"num_rows": 70_000}, "num_rows must lie in"),
        ({"num_columns": 3}, "embedding_dim must be a multiple of num_columns"),
    ],
)
def test_sizes_that_contradict_are_rejected(options, problem):
    model = trained((50,))
    with pytest.raises(ValueError, match=problem):
        cce.finalize(model, **options)
    assert not model["t0"].is_final


def test_a_second_call_does_nothing_and_says_so():
    model = trained()
    assert "knee, chosen" in str(cce.finalize(model, seed=0))
    before = dense(model)
    again = cce.finalize(model, seed=1, nbytes=1)
    assert again.tables == again.curve == ()
    assert str(again) == "no table trains as int8 rows: nothing to finalize"
    assert torch.equal(dense(model), before)
