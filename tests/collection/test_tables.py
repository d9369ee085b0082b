"""A collection is its single tables, looked up together."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cce
from cce.budget import Budget
from cce.collection import EmbeddingCollection
from helpers.linear_tables import seeded
from helpers.variants import registered  # noqa: F401

FEATURES = {"user": 700, "item": 300, "day": 7}
METHODS = {"user": "cce-paper", "item": "robe", "day": "hash"}
DIM = 16


def make(method="cce-paper", **options):
    return EmbeddingCollection(FEATURES, DIM, method=method, **{"seed": 0, "budget": Budget(compression=4), **options})


def ids_of(batch, seed=1):
    return torch.stack([torch.randint(0, n, (batch,), generator=seeded(seed)) for n in FEATURES.values()], dim=1)


def bags_of(batch, longest=4, seed=1):
    """Ids and offsets with empty bags."""
    lengths = torch.randint(0, longest + 1, (len(FEATURES), batch), generator=seeded(seed))
    ids = [torch.randint(0, n, (int(own.sum()),), generator=seeded(seed)) for n, own in zip(FEATURES.values(), lengths)]  # noqa: B905
    return torch.cat(ids), torch.cat([torch.zeros(1, dtype=torch.int64), lengths.flatten().cumsum(0)])


def pooled_apart(collection, ids, offsets, weights=None, mode="sum"):
    """The definition: an EmbeddingBag around each table."""
    batch, vectors = (len(offsets) - 1) // len(FEATURES), []
    for index, table in enumerate(collection.tables.values()):
        own = offsets[index * batch : (index + 1) * batch + 1]
        first, last = int(own[0]), int(own[-1])
        bag = cce.embeddings.EmbeddingBag(table, mode=mode, include_last_offset=True)
        vectors.append(bag(ids[first:last], own - first, None if weights is None else weights[first:last]))
    return torch.stack(vectors, dim=1)


def gradients(collection, vectors, upstream):
    collection.zero_grad()
    (vectors * upstream).sum().backward()
    return {name: parameter.grad.to_dense() for name, parameter in collection.named_parameters()}


# -- one id for each feature -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["cce-paper", "ce-sum", "hash", METHODS, {"user": "dhe", "item": "cce-paper", "day": "tt"}, lambda name, n: "pq"],
)
@pytest.mark.parametrize("padding_idx", [None, 3])
def test_it_equals_its_single_tables(method, padding_idx):
    collection, ids = make(method, padding_idx=padding_idx), ids_of(300)
    tables = list(collection.tables.values())
    expected = torch.stack([table(ids[:, index]) for index, table in enumerate(tables)], dim=1)
    assert torch.equal(collection(ids), expected)
    upstream = torch.randn(300, 3, DIM, generator=seeded(2))
    found, right = gradients(collection, collection(ids), upstream), gradients(collection, expected, upstream)
    for name, gradient in right.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=0)


def test_weighted_tables_stand_between_the_others():
    collection, ids = make(METHODS | {"item": "hash"}, options={"hash": {"signed": True}}), ids_of(30)
    expected = [table(ids[:, index]) for index, table in enumerate(collection.tables.values())]
    assert torch.equal(collection(ids), torch.stack(expected, dim=1))


@pytest.mark.parametrize("batch", [0, 1, 257])
def test_batches_of_any_size_and_type(batch):
    collection, ids = make(), ids_of(batch)
    assert collection(ids).shape == (batch, 3, DIM)
    assert torch.equal(collection(ids.int()), collection(ids))
    assert torch.equal(collection(ids.T.contiguous().T), collection(ids))


def test_a_dictionary_by_name_is_the_same_in_any_order():
    collection, ids = make(), ids_of(30)
    by_name = {name: ids[:, index] for index, name in enumerate(FEATURES)}
    assert torch.equal(collection(dict(reversed(by_name.items()))), collection(ids))


def test_sparse_gradients_are_those_of_single_tables():
    dense, sparse, ids = make(), make(sparse=True), ids_of(300)
    upstream = torch.randn(300, 3, DIM, generator=seeded(2))
    expected, found = (gradients(each, each(ids), upstream) for each in (dense, sparse))
    assert all(parameter.grad.is_sparse for parameter in sparse.parameters())
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_table_that_is_not_trained_gets_no_gradient():
    collection = make()
    collection.tables["item"].requires_grad_(False)
    collection(ids_of(30)).sum().backward()
    assert [name for name, p in collection.named_parameters() if p.grad is None] == ["tables.item.codebook"]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_do_not_show(num_threads, threads):
    num_threads(threads)
    collection, ids = make(), ids_of(9000)
    vectors = collection(ids)
    single = torch.stack([t(ids[:, index]) for index, t in enumerate(collection.tables.values())], dim=1)
    assert torch.equal(vectors, single)


@pytest.mark.parametrize("wrong", [-1, 7, 2**40])
@pytest.mark.parametrize("unified", [False, True])
def test_an_id_out_of_range_is_named_with_its_feature(wrong, unified):
    collection, ids = make(unified=unified), ids_of(300)
    ids[290, 2] = wrong
    message = rf"ids of feature 'day' must lie in \[0, 7\), got {wrong}\."
    with pytest.raises(IndexError, match=message):
        collection(ids)
    with pytest.raises(IndexError, match=message):
        collection(ids.T.flatten(), torch.arange(901))


# -- bags --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["cce-paper", METHODS, {"user": "dhe", "item": "cce-paper", "day": "full"}])
@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("padding_idx", [None, 3])
def test_bags_are_those_of_embedding_bag(method, pooling, padding_idx):
    collection = make(method, pooling=pooling, padding_idx=padding_idx)
    ids, offsets = bags_of(200)
    expected = pooled_apart(collection, ids, offsets, mode=pooling)
    torch.testing.assert_close(collection(ids, offsets), expected)
    upstream = torch.randn(200, 3, DIM, generator=seeded(2))
    found, right = gradients(collection, collection(ids, offsets), upstream), gradients(collection, expected, upstream)
    for name, gradient in right.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(batch=st.integers(0, 300), longest=st.integers(0, 5), seed=st.integers(0, 99))
def test_any_bags(batch, longest, seed):
    collection = make(padding_idx=3)
    ids, offsets = bags_of(batch, longest, seed)
    torch.testing.assert_close(collection(ids, offsets), pooled_apart(collection, ids, offsets))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_of_ids_and_their_gradient(dtype):
    collection, (ids, offsets) = make(padding_idx=3, dtype=dtype), bags_of(50)
    weights = torch.randn(len(ids), generator=seeded(4)).to(dtype)
    expected = pooled_apart(collection, ids, offsets, weights)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(collection(ids, offsets, weights), expected, rtol=8 * eps, atol=8 * eps)
    one, other = (weights.clone().requires_grad_() for _ in range(2))
    collection(ids, offsets, one).square().sum().backward()
    pooled_apart(collection, ids, offsets, other).square().sum().backward()
    torch.testing.assert_close(one.grad, other.grad)


def test_sparse_gradients_of_bags():
    (ids, offsets), results = bags_of(100), []
    for sparse in (False, True):
        collection = make(sparse=sparse, padding_idx=3)
        results.append(gradients(collection, collection(ids, offsets), torch.ones(100, 3, DIM)))
    assert collection.tables["user"].codebook.grad.is_sparse
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


@pytest.mark.parametrize("threads", [2, 3])
def test_bags_have_the_same_bits_on_any_number_of_threads(num_threads, threads):
    results, (ids, offsets) = [], bags_of(3000)
    for count in (1, threads):
        num_threads(count)
        collection = make()
        vectors = collection(ids, offsets)
        results.append([vectors, *gradients(collection, vectors, vectors.detach()).values()])
    assert all(map(torch.equal, *results))


def test_a_dictionary_of_bags_and_of_single_ids():
    collection, ids = make(), ids_of(2)
    offsets, weights = torch.tensor([0, 3, 3]), torch.tensor([1.0, 2.0, -1.0])
    found = collection({"user": (torch.tensor([5, 6, 5]), offsets, weights), "item": ids[:, 1], "day": ids[:, 2]})
    user = collection.tables["user"](torch.tensor([5, 6]))
    torch.testing.assert_close(found[:, 0], torch.stack([2 * user[1], torch.zeros(DIM)]))
    assert torch.equal(found[:, 1:], collection(ids)[:, 1:])


def test_a_dictionary_s_bags_keep_away_from_the_default_device():
    collection, ids = make(), ids_of(2)
    bags = {name: (ids[:, index], torch.tensor([0, 1, 2])) for index, name in enumerate(FEATURES)}
    bags["day"] = ids[:, 2]
    with torch.device("meta"):
        assert torch.equal(collection(bags), collection(ids))


# -- unified -----------------------------------------------------------------------------------------------------------


def test_a_unified_table_hashes_the_values_of_features_apart():
    collection = EmbeddingCollection(
        {"a": 500, "b": 500}, DIM, method="hash", unified=True, budget=Budget(compression=10), seed=0
    )
    vectors = collection(torch.arange(500).unsqueeze(1).expand(-1, 2))
    shared = (vectors[:, 0] == vectors[:, 1]).all(-1).float().mean()
    assert shared < 0.05  # 1 in 100 rows, by chance
    assert list(collection.tables) == ["all"]
    assert collection.num_params <= 1000 * DIM / 10


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("padding_idx", [None, 3, -1])
def test_a_unified_table_pads_and_pools_every_feature(pooling, padding_idx):
    collection = make(unified=True, pooling=pooling, padding_idx=padding_idx)
    ids, offsets = bags_of(40)
    batch, starts = 40, [0, 700, 1000]
    paddings = [None if padding_idx is None else padding_idx % n for n in FEATURES.values()]
    table, found = collection.tables["all"], collection(ids, offsets)
    for index in range(3):
        for row in range(batch):
            bag = ids[offsets[index * batch + row] : offsets[index * batch + row + 1]]
            kept = bag[bag != (-1 if paddings[index] is None else paddings[index])]
            total = table(kept + starts[index]).sum(0)
            expected = total / max(1, len(kept)) if pooling == "mean" else total
            torch.testing.assert_close(found[row, index], expected)
    single = ids_of(20)
    single[:, 2] = 3 if padding_idx == 3 else 6
    assert bool(collection(single)[:, 2].any()) is (padding_idx is None)


# -- making, saving, moving --------------------------------------------------------------------------------------------


def test_equal_seeds_give_equal_tables():
    one, same, other = make(seed=1), make(seed=1), make(seed=2)
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, same.state_dict()[name])
    assert not torch.equal(one(ids_of(5)), other(ids_of(5)))
    torch.manual_seed(1)
    drawn = make(seed=None)
    torch.manual_seed(1)
    assert torch.equal(make(seed=None)(ids_of(5)), drawn(ids_of(5)))


def test_a_checkpoint_moves_to_single_tables_and_back():
    collection, ids = make(METHODS), ids_of(30)
    state = collection.state_dict()
    assert {name.rsplit(".", 1)[0].split(".")[1] for name in state} == set(FEATURES)
    other = make(METHODS, seed=5)
    for feature, table in copy.deepcopy(other).tables.items():
        own = {n.removeprefix(f"tables.{feature}."): t for n, t in state.items() if n.startswith(f"tables.{feature}.")}
        table.load_state_dict(own)
        assert torch.equal(table(ids[:, 0] % 7), collection.tables[feature](ids[:, 0] % 7))
        other.load_state_dict({f"tables.{feature}.{n}": t for n, t in table.state_dict().items()}, strict=False)
    assert torch.equal(other(ids), collection(ids))


def test_a_copy_and_a_moved_collection_look_up_their_own_numbers():
    collection, ids = make(METHODS), ids_of(300)
    before = collection(ids)
    twin = copy.deepcopy(collection)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(2)
    assert torch.equal(collection(ids), before)
    assert torch.equal(twin(ids), 2 * before)
    assert collection.double()(ids).dtype is torch.float64
    assert torch.equal(collection.float().share_memory()(ids), before)
    for fact in [m.seeds for m in collection.modules() if hasattr(m, "seeds")]:
        fact.share_memory_()
    assert torch.equal(collection(ids), before)


def test_a_replaced_table_is_looked_up_from_then_on():
    collection, ids = make("full", budget=Budget(compression=1)), ids_of(30)
    collection(ids)
    collection.tables["day"] = cce.embeddings.FullEmbedding(5, DIM, generator=seeded(3))  # smaller
    ids[:, 2] = 4
    assert torch.equal(collection(ids)[:, 2], collection.tables["day"](ids[:, 2]))
    with pytest.raises(IndexError, match=r"ids of feature 'day' must lie in \[0, 5\), got 6"):
        collection(torch.tensor([[0, 0, 6]]))


@pytest.mark.slow
def test_other_tables_and_modes_of_training_leave_its_launch_plan_alone():
    collection, other, ids = make(), make(), ids_of(30)
    collection(ids)
    plan = collection._fused.look_up.plan
    other.tables["user"].padding_idx = 3
    other.cluster(generator=seeded())
    collection.eval()(ids)
    collection.train()(ids)
    assert collection._fused.look_up.plan is plan is not None
    collection.tables["user"].padding_idx = 3
    collection(ids)
    assert collection._fused.look_up.plan is not plan


@pytest.mark.slow
def test_torch_compile_gives_the_same():
    torch.compiler.reset()
    collection, ids = make(METHODS), ids_of(20)
    compiled = torch.compile(collection, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(ids), collection(ids))


def test_a_collection_without_a_budget_says_so():
    assert "full tables: no budget was given" in repr(EmbeddingCollection({"a": 5, "b": 9}, 4))
    for budget in ({"method": "full"}, {"cap": 8, "method": "hash"}, {"budget": Budget(compression=1)}):
        assert "no budget" not in repr(EmbeddingCollection({"a": 5, "b": 9}, 4, **budget))


# -- clustering --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_clustering_has_the_same_bits_on_any_number_of_threads(num_threads):
    states = []
    for threads in (1, 2, 3):
        num_threads(threads)
        collection = make()
        events = collection.cluster(generator=seeded(5))
        assert (
            len(events) == sum(table.method == "cce-paper" for table in collection.tables.values()) == 2
        )  # "day" is full
        states.append(collection.state_dict())
    for other in states[1:]:
        assert all(torch.equal(tensor, states[0][name]) for name, tensor in other.items())


@pytest.mark.slow
def test_a_schedule_clusters_it_and_repairs_the_optimizer():
    torch.manual_seed(0)
    model = torch.nn.Sequential(make(), torch.nn.Flatten(), torch.nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters())
    schedule, ids = cce.reclustering.ClusterSchedule(model, optimizer, every=2), ids_of(64)
    before = model[0].tables["user"].assignments.pointers.to_tensor()
    for _ in range(3):
        optimizer.zero_grad()
        model(ids).square().mean().backward()
        optimizer.step()
        events = schedule.step()
    assert not events
    assert not torch.equal(model[0].tables["user"].assignments.pointers.to_tensor(), before)
    for parameter in model[0].parameters():
        assert optimizer.state[parameter]["exp_avg"].shape == parameter.shape
    assert torch.isfinite(model(ids)).all()


# -- as torch has it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unified", [False, True])
def test_a_collection_is_made_on_the_meta_device_and_drawn_later(unified):
    def made(**options):
        sizes = {"a": 300, "b": 5, "c": 200}
        return cce.EmbeddingCollection(sizes, 8, method="hash", cap=400, unified=unified, **options)

    expected, ids = made(seed=3, dtype=torch.float64), torch.tensor([[1, 2, 3], [299, 4, 199]])
    with torch.device("meta"):
        tables = made(dtype=torch.float64)
    assert all(tensor.is_meta for tensor in tables.state_dict().values())
    tables.to_empty(device="cpu").reset_parameters(torch.Generator().manual_seed(3))
    assert torch.equal(tables(ids), expected(ids))
    assigned = made(device="meta", dtype=torch.float64)
    assigned.load_state_dict(expected.state_dict(), assign=True)
    assert torch.equal(assigned(ids), expected(ids))


@pytest.mark.slow
def test_a_collection_is_exported_for_any_batch():
    tables = cce.EmbeddingCollection({"a": 300, "b": 5}, 8, method="hash", cap=400, seed=0)
    ids = torch.tensor([[1, 2], [299, 4], [3, 0]])
    program = torch.export.export(tables, (ids,), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
    for batch in (ids, ids[:1], ids[:0], ids.repeat(4, 1)):
        torch.testing.assert_close(program(batch), tables(batch))
