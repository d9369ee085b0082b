import copy

import pytest
import torch

import cce
from cce import compiled
from cce.embeddings import Int8Rows, RowPolicy, RowTables
from cce.kernels import int8 as loops
from cce.kernels.cpu.int8.tables import encode_count
from helpers.final_form import finalize_table


def make(num_ids=2000, dim=4, **policy):
    return Int8Rows(num_ids, dim, bound=0.1, key=5, policy=RowPolicy(**policy))


def test_an_id_without_a_row_reads_zeros():
    rows = make()
    rows.give_rows(torch.tensor([7, 3]))
    vectors = rows.read(torch.tensor([3, 7, 8]))
    assert vectors[:2].abs().sum(1).gt(0).all()
    assert vectors[2].eq(0).all()


def test_a_row_starts_small_and_the_same_whenever_its_id_gets_it():
    first, second = make(), make()
    first.give_rows(torch.arange(100))
    second.give_rows(torch.arange(99, -1, -1))
    ids = torch.arange(100)
    assert torch.equal(first.read(ids), second.read(ids))
    assert first.read(ids).abs().max() <= 0.1 + first.scale
    assert first.read(ids).std() == pytest.approx(0.1 / 3**0.5, rel=0.1)


@pytest.mark.parametrize("in_loops", [True, False])
def test_where_a_row_lies_is_nowhere_to_be_seen(in_loops, monkeypatch):
    monkeypatch.setattr(Int8Rows, "can_loop", in_loops)
    rows = make()
    generator = torch.Generator().manual_seed(0)
    order, values = torch.randperm(2000, generator=generator), {}
    for some in torch.split(order[:1200], 50):
        rows.give_rows(some)
        rows.codes[rows.find(some)] = torch.randint(-127, 128, (len(some), 4), generator=generator, dtype=torch.int8)
        values |= {int(given): rows.read(given.view(1))[0] for given in some}
    found = rows.read(torch.arange(2000))
    for given in range(2000):
        assert torch.equal(found[given], values.get(given, torch.zeros(4)))


def test_rows_that_came_since_are_found_before_and_after_they_are_in_the_map():
    rows = make()
    rows.give_rows(torch.arange(0, 2000, 2))
    rows.make_room(300)
    ids = torch.arange(1, 600, 2)
    rows.recent.insert(ids, rows.num_rows)
    rows.live.record["num_rows"] += len(ids)
    rows.codes[rows.find(ids)] = 9
    before = rows.codes[rows.find(torch.arange(2000))]
    assert rows.num_recent == 300
    rows.compact()
    assert rows.num_recent == 0
    assert torch.equal(rows.codes[rows.find(torch.arange(2000))], before)
    assert rows.find(torch.tensor([0, 1, 2, 3])).tolist() == [1, 2, 3, 4]


def test_memory_is_that_of_the_rows_that_were_earned():
    rows = make(100_000, 16)
    rows.give_rows(torch.arange(0, 100_000, 10))
    assert rows.row_nbytes == 10_001 * (16 + 3)
    without = rows.index_nbytes + rows.map.nbytes
    assert without / 100_000 <= 0.5
    assert (rows.nbytes + rows.map.nbytes - 0.5 * 90_000) / 10_000 <= 16 + 4


@pytest.mark.parametrize("min_count", [2, 3, 5, 17, 256])
def test_counts_of_ids_without_rows_take_as_many_bits_as_they_need(min_count):
    rows = make(min_count=min_count)
    assert min_count <= 2**rows.seen_bits <= 256
    assert rows.seen.nbytes == 2000 * rows.seen_bits // 8 + 1


def test_a_copy_and_a_loaded_state_have_the_same_rows_and_go_on_to_grow():
    rows = make()
    rows.give_rows(torch.arange(0, 500, 3))
    loaded, ids = make(), torch.arange(2000)
    loaded.load_state_dict(rows.state_dict())
    for other in (copy.deepcopy(rows), loaded):
        assert torch.equal(other.read(ids), rows.read(ids))
        other.give_rows(torch.tensor([1, 1999]))
        assert other.read(torch.tensor([1, 1999])).abs().sum() > 0
        assert rows.read(torch.tensor([1, 1999])).abs().sum() == 0


def test_a_state_of_another_width_is_rejected():
    with pytest.raises(RuntimeError, match="rows mismatch for records: the checkpoint has rows of 7 bytes"):
        make(dim=8).load_state_dict(make().state_dict())


def test_rows_that_do_not_belong_to_the_map_are_not_read():
    few, many = (cce.embeddings.CCEEmbedding(2000, 64, counts=torch.arange(2000) < most) for most in (5, 2000))
    mixed = few.state_dict() | {"rows.map.bits": many.state_dict()["rows.map.bits"]}
    few.load_state_dict(mixed)
    with pytest.raises(ValueError, match="must be as many as ids have, got 2000 in the map and 5 rows"):
        few(torch.arange(2000))
    del mixed["rows.records"]
    other = cce.embeddings.CCEEmbedding(2000, 64)
    other(torch.arange(2000))
    other.load_state_dict(mixed, strict=False)
    with pytest.raises(ValueError, match="got 2000 in the map and 0 rows"):
        other(torch.arange(2000))


def test_pointers_that_do_not_belong_to_the_map_are_not_followed():
    few, many = (cce.embeddings.CCEEmbedding(100, 16, counts=torch.arange(100) < most) for most in (50, 100))
    finalize_table(few)
    finalize_table(many)
    few.load_state_dict(few.state_dict() | {"rows.map.bits": many.state_dict()["rows.map.bits"]})
    with pytest.raises(ValueError, match="pointers must be those of 100 ids, got 50"):
        few(torch.arange(100))


def test_pointers_to_rows_that_are_not_there_are_rejected():
    table = cce.embeddings.CCEEmbedding(100, 16, num_rows=20, counts=torch.ones(100))
    finalize_table(table)
    state = table.state_dict()
    with pytest.raises(RuntimeError, match=r"words mismatch for pointers.words: they must lie in \[0, 20\)"):
        table.load_state_dict(state | {"pointers.words": torch.full_like(state["pointers.words"], 255)})


@pytest.mark.parametrize("num_features", [1, 3])
def test_a_batch_of_no_bags_has_no_gradients(num_features):
    tables = cce.EmbeddingCollection({str(i): 1000 for i in range(num_features)}, 8, cap=2000)
    optimizer = cce.optim.Adam(tables, lr=1e-2)
    nothing = torch.zeros(0, dtype=torch.int64)
    vectors = tables(nothing, torch.zeros(1, dtype=torch.int64))
    assert vectors.shape == (0, num_features, 8)
    vectors.sum().backward()
    optimizer.step()
    assert all(table.rows.num_rows == 1 for table in tables.tables.values())


def test_a_trained_table_is_rounded_to_the_nearest_values():
    weight = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    rows = make(300)
    rows.fit(weight)
    assert (rows.read(torch.arange(300)) - weight).abs().max() <= rows.scale / 2 + 1e-6


@pytest.mark.parametrize("count", [0, 1, 7, 8, 15, 16, 17, 31, 100, 12_345, 10**9])
def test_a_count_of_one_byte_is_right_within_an_eighth_and_on_average(count):
    noise = torch.linspace(0, 0.999, 1000)
    found = [loops.COUNT_VALUES[encode_count(float(count), float(each))] for each in noise]
    assert all(abs(value - count) <= count / 8 for value in found)
    assert sum(found) / len(found) == pytest.approx(count, rel=2e-3)


def bag_inputs(num_ids=300, num_bags=40, num_features=1, seed=0):
    """Ids, offsets with the end of the last bag, and weights; some bags are empty."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 6, (num_bags * num_features,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    ids = torch.randint(0, num_ids, (int(offsets[-1]),), generator=generator)
    return ids, offsets, torch.rand(len(ids), generator=generator)


def trained_by_bags(make_model, pooled, monkeypatch, *, fused):
    """The vectors of some steps, and the table after them."""
    with monkeypatch.context() as patch:
        if not fused:
            patch.setattr(RowTables, "can_pool", lambda *_: False)
        model = make_model()
        optimizer = cce.optim.Adam(model, lr=1e-2)
        found = []
        for step in range(6):
            optimizer.zero_grad()
            vectors = pooled(model, step)
            vectors.square().sum().backward()
            optimizer.step()
            found.append(vectors.detach())
    return found, model.state_dict()


@pytest.mark.skipif(not compiled.available, reason="numba is not installed")
@pytest.mark.parametrize(("mode", "is_weighted"), [("sum", False), ("sum", True), ("mean", False)])
@pytest.mark.parametrize("dim", [6, 16])
def test_bags_of_one_table_have_the_bits_of_their_pooled_ids(mode, is_weighted, dim, monkeypatch):
    def make_model():
        table = cce.embeddings.CCEEmbedding(300, dim, padding_idx=3, generator=torch.Generator().manual_seed(0))
        return cce.embeddings.EmbeddingBag(table, mode=mode, include_last_offset=True)

    def pooled(model, step):
        ids, offsets, weights = bag_inputs(seed=step)
        return model(ids, offsets, weights if is_weighted else None)

    monkeypatch.setenv("CCE_COMPILED", "1")
    (one, state), (other, wanted) = (
        trained_by_bags(make_model, pooled, monkeypatch, fused=fused) for fused in (True, False)
    )
    assert all(map(torch.equal, one, other))
    assert all(torch.equal(state[name], wanted[name]) for name in state)


@pytest.mark.skipif(not compiled.available, reason="numba is not installed")
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_bags_of_a_collection_are_one_call_with_the_same_bits(pooling, monkeypatch):
    calls = []
    look_up = loops.look_up
    monkeypatch.setattr(loops, "look_up", lambda *arguments: calls.append(len(arguments[0])) or look_up(*arguments))

    def make_model():
        return cce.EmbeddingCollection({"a": 300, "b": 300, "c": 300}, 8, pooling=pooling, seed=0)

    def pooled(model, step):
        ids, offsets, _ = bag_inputs(num_features=3, seed=step)
        return model(ids, offsets)

    monkeypatch.setenv("CCE_COMPILED", "1")
    one, state = trained_by_bags(make_model, pooled, monkeypatch, fused=True)
    assert calls == [3] * 6
    other, wanted = trained_by_bags(make_model, pooled, monkeypatch, fused=False)
    assert all(map(torch.equal, one, other))
    assert all(torch.equal(state[name], wanted[name]) for name in state)


@pytest.mark.skipif(not compiled.available, reason="numba is not installed")
def test_a_wrong_id_in_a_bag_is_named(monkeypatch):
    monkeypatch.setenv("CCE_COMPILED", "1")
    tables = cce.EmbeddingCollection({"a": 400, "b": 300}, 8, seed=0)
    with pytest.raises(IndexError, match=r"ids of feature 'b' must lie in \[0, 300\), got 370"):
        tables(torch.tensor([370, 8, 370]), torch.tensor([0, 1, 2, 2, 3]))
