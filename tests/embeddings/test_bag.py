"""`EmbeddingBag` is torch's own, around any table, composing before pooling."""

import copy

import pytest
import torch

import cce
from cce.embeddings import ClusteredEmbedding, CompositionalProductEmbedding, EmbeddingBag, FullEmbedding
from helpers.draws import seeded

NUM_IDS, DIM = 20, 4
MODES = ["sum", "mean", "max"]
FLAT_IDS = [3, 7, 7, 0, 19, 2, 3, 3, 11, 5]
OFFSETS = {
    "no empty bag": [0, 2, 3, 7],
    "an empty first bag": [0, 0, 4],
    "an empty bag in the middle": [0, 4, 4, 4, 6],
    "an empty last bag": [0, 6, 10],
    "only one bag": [0],
    "a bag for each id": list(range(10)),
}


def twins(*, mode, include_last_offset=False, padding_idx=None, dtype=torch.float64, sparse=False):
    """Our bag around a full table, and torch's with the same numbers."""
    table = FullEmbedding(NUM_IDS, DIM, sparse=sparse, generator=seeded()).to(dtype)
    ours = EmbeddingBag(table, mode=mode, include_last_offset=include_last_offset, padding_idx=padding_idx)
    theirs = torch.nn.EmbeddingBag(
        NUM_IDS,
        DIM,
        mode=mode,
        include_last_offset=include_last_offset,
        padding_idx=padding_idx,
        dtype=dtype,
        sparse=sparse,
    )
    with torch.no_grad():
        theirs.weight.copy_(table.codebook)
    return ours, theirs


def assert_alike(ours, theirs, *args, **options):
    """The same vectors, and the same gradient of the table for the same gradient from above."""
    our_vectors, their_vectors = ours(*args, **options), theirs(*args, **options)
    assert our_vectors.shape == their_vectors.shape
    assert our_vectors.dtype == their_vectors.dtype
    assert torch.allclose(our_vectors, their_vectors)
    upstream = torch.randn(our_vectors.shape, generator=seeded(1), dtype=our_vectors.dtype)
    our_vectors.backward(upstream)
    their_vectors.backward(upstream)
    assert torch.allclose(ours.table.codebook.grad.to_dense(), theirs.weight.grad.to_dense())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=OFFSETS.keys())
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_flat_ids_with_offsets_give_torchs_vectors_and_gradients(mode, offsets, dtype):
    ours, theirs = twins(mode=mode)
    assert_alike(ours, theirs, torch.tensor(FLAT_IDS, dtype=dtype), torch.tensor(offsets, dtype=dtype))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=OFFSETS.keys())
def test_a_last_offset_may_be_included(mode, offsets):
    ours, theirs = twins(mode=mode, include_last_offset=True)
    assert_alike(ours, theirs, torch.tensor(FLAT_IDS), torch.tensor([*offsets, len(FLAT_IDS)]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(2, 5), (10, 1), (1, 10)])
@pytest.mark.parametrize("include_last_offset", [False, True])
def test_each_row_of_2d_ids_is_a_bag(mode, shape, include_last_offset):
    ours, theirs = twins(mode=mode, include_last_offset=include_last_offset)
    assert_alike(ours, theirs, torch.tensor(FLAT_IDS).view(shape))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding_idx", [3, -1])
@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=OFFSETS.keys())
def test_padding_is_left_out_of_the_pool_as_in_torch(mode, padding_idx, offsets):
    ours, theirs = twins(mode=mode, padding_idx=padding_idx)
    assert_alike(ours, theirs, torch.tensor(FLAT_IDS), torch.tensor(offsets))
    assert ours.padding_idx == theirs.padding_idx == padding_idx % NUM_IDS


def test_padding_counts_neither_for_the_mean_nor_for_the_maximum():
    table = FullEmbedding(3, 1)
    with torch.no_grad():
        table.codebook.copy_(torch.tensor([[100.0], [-2.0], [-4.0]]))
    ids = torch.tensor([[0, 1, 2], [0, 0, 2], [0, 0, 0]])
    assert EmbeddingBag(table, mode="sum", padding_idx=0)(ids).tolist() == [[-6.0], [-4.0], [0.0]]
    assert EmbeddingBag(table, mode="mean", padding_idx=0)(ids).tolist() == [[-3.0], [-4.0], [0.0]]
    assert EmbeddingBag(table, mode="max", padding_idx=0)(ids).tolist() == [[-2.0], [-4.0], [0.0]]


@pytest.mark.parametrize("mode", MODES)
def test_the_tables_own_padding_is_the_bags_unless_told_otherwise(mode):
    table = FullEmbedding(NUM_IDS, DIM, padding_idx=-2, generator=seeded())
    ids = torch.tensor([[18, 3, 18]])
    assert EmbeddingBag(table, mode=mode).padding_idx == 18
    assert torch.equal(EmbeddingBag(table, mode=mode)(ids), table(torch.tensor([3])))
    assert EmbeddingBag(table, mode=mode, padding_idx=3).padding_idx == 3


@pytest.mark.parametrize("mode", MODES)
def test_bags_of_padding_only_give_zeros_and_no_gradient(mode):
    ours, _ = twins(mode=mode, padding_idx=3)
    vectors = ours(torch.tensor([[3, 3], [3, 3]]))
    vectors.sum().backward()
    assert not vectors.any()
    assert not ours.table.codebook.grad.any()


@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=OFFSETS.keys())
@pytest.mark.parametrize("padding_idx", [None, 3])
def test_weights_of_single_ids_give_torchs_vectors_and_gradients(offsets, padding_idx):
    ours, theirs = twins(mode="sum", padding_idx=padding_idx)
    our_weights, their_weights = (
        torch.randn(10, generator=seeded(2), dtype=torch.float64).requires_grad_() for _ in range(2)
    )
    ids, starts = torch.tensor(FLAT_IDS), torch.tensor(offsets)
    upstream = torch.randn(len(offsets), DIM, generator=seeded(1), dtype=torch.float64)
    our_vectors = ours(ids, starts, per_sample_weights=our_weights)
    their_vectors = theirs(ids, starts, per_sample_weights=their_weights)
    assert torch.allclose(our_vectors, their_vectors)
    our_vectors.backward(upstream)
    their_vectors.backward(upstream)
    assert torch.allclose(our_weights.grad, their_weights.grad)
    assert torch.allclose(ours.table.codebook.grad, theirs.weight.grad)


def test_weights_of_2d_ids_give_torchs_vectors_and_gradients():
    ours, theirs = twins(mode="sum")
    weights = torch.randn(2, 5, generator=seeded(2), dtype=torch.float64)
    assert_alike(ours, theirs, torch.tensor(FLAT_IDS).view(2, 5), per_sample_weights=weights)


@pytest.mark.parametrize("mode", MODES)
def test_all_bags_may_be_empty(mode):
    ours, theirs = twins(mode=mode)
    assert_alike(ours, theirs, torch.empty(0, dtype=torch.int64), torch.tensor([0, 0, 0]))


@pytest.mark.parametrize("mode", MODES)
def test_there_may_be_no_bags(mode):
    ours, _ = twins(mode=mode)
    nothing = torch.empty(0, dtype=torch.int64)
    assert ours(nothing, nothing).shape == (0, DIM)
    assert ours(torch.empty(0, 5, dtype=torch.int64)).shape == (0, DIM)
    ours.include_last_offset = True
    assert ours(nothing, torch.tensor([0])).shape == (0, DIM)


@pytest.mark.parametrize("mode", MODES)
def test_rows_of_no_ids_are_empty_bags(mode):
    ours, _ = twins(mode=mode)
    vectors = ours(torch.empty(3, 0, dtype=torch.int64))
    assert vectors.shape == (3, DIM)
    assert not vectors.any()


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_a_sparse_table_gets_torchs_sparse_gradient(mode):
    ours, theirs = twins(mode=mode, sparse=True)
    assert_alike(ours, theirs, torch.tensor(FLAT_IDS), torch.tensor([0, 4, 4]))
    assert ours.table.codebook.grad.is_sparse


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_vectors_have_the_type_of_the_table(mode, dtype):
    ours, theirs = twins(mode=mode, dtype=dtype)
    vectors = ours(torch.tensor(FLAT_IDS), torch.tensor([0, 4]))
    expected = theirs(torch.tensor(FLAT_IDS), torch.tensor([0, 4]))
    assert vectors.dtype is dtype
    assert torch.allclose(vectors.float(), expected.float(), rtol=0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_mean_of_a_long_bag_is_right_in_half_precision(dtype):
    table = FullEmbedding(2, 1).to(dtype)
    with torch.no_grad():
        table.codebook.copy_(torch.tensor([[1.0], [0.0]]))
    ids = torch.tensor([[0, 1] * 3000])
    assert EmbeddingBag(table, mode="mean")(ids).item() == 0.5


def test_the_mean_of_a_bag_whose_sum_overflows_float16_is_right():
    table = FullEmbedding(1, 1).half()
    with torch.no_grad():
        table.codebook.fill_(100.0)
    assert EmbeddingBag(table, mode="mean")(torch.zeros(1, 1000, dtype=torch.int64)).item() == 100.0


@pytest.mark.parametrize("mode", MODES)
def test_gradients_agree_with_finite_differences(mode):
    ours, _ = twins(mode=mode, padding_idx=7)
    ids, offsets = torch.tensor(FLAT_IDS), torch.tensor([0, 3, 3, 6])

    def pooled(codebook):
        return torch.func.functional_call(ours, {"table.codebook": codebook}, (ids, offsets))

    assert torch.autograd.gradcheck(pooled, (ours.table.codebook.detach().clone().requires_grad_(),))


TABLES = {
    "ce-mult": lambda: CompositionalProductEmbedding(NUM_IDS, DIM, num_rows=5, generator=seeded()),
    "cce": lambda: ClusteredEmbedding(NUM_IDS, DIM, num_rows=5, num_columns=2, generator=seeded()),
}


def test_pooling_before_composing_would_give_something_else():
    table = TABLES["ce-mult"]()
    ids = torch.tensor([[3, 7, 11]])
    pieces = table.codebook[table.split(ids) + torch.tensor([0, 5])]  # (1, 3, num_tables, DIM)
    pooled_first = pieces.sum(dim=1).prod(dim=1)
    composed_first = pieces.prod(dim=2).sum(dim=1)
    vectors = EmbeddingBag(table, mode="sum")(ids)
    assert torch.allclose(vectors, composed_first)
    assert not torch.allclose(vectors, pooled_first, atol=1e-3)


FLAT, SQUARE = (torch.tensor(FLAT_IDS), torch.tensor([0, 4, 4])), (torch.tensor(FLAT_IDS).view(5, 2),)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "args"), [("mean", FLAT), ("max", SQUARE)])
def test_compiled_it_gives_the_same_vectors_and_gradients(mode, args):
    eager = EmbeddingBag(TABLES["cce"](), mode=mode, padding_idx=3)
    compiled_bag = copy.deepcopy(eager)
    vectors = torch.compile(compiled_bag, backend="aot_eager", fullgraph=True)(*args)
    assert torch.allclose(vectors, eager(*args))
    vectors.square().sum().backward()
    eager(*args).square().sum().backward()
    assert torch.allclose(compiled_bag.table.codebook.grad, eager.table.codebook.grad)


@pytest.mark.slow
def test_compiled_it_weighs_single_ids():
    bag = EmbeddingBag(TABLES["ce-mult"](), mode="sum", include_last_offset=True)
    compiled = torch.compile(bag, backend="aot_eager", fullgraph=True)
    args = torch.tensor(FLAT_IDS), torch.tensor([0, 4, 10]), torch.rand(10, generator=seeded())
    assert torch.allclose(compiled(*args), bag(*args))


def test_it_tells_its_sizes_and_takes_the_mean_by_default_as_torch_does():
    bag = EmbeddingBag(FullEmbedding(NUM_IDS, DIM))
    assert (bag.num_embeddings, bag.embedding_dim, bag.mode) == (NUM_IDS, DIM, "mean")
    assert bag.extra_repr() == "mode='mean'"


def test_torchs_name_of_the_table_is_answered_with_a_hint():
    bag = EmbeddingBag(cce.embeddings.ClusteredEmbedding(50, 4, num_rows=3))
    with pytest.raises(AttributeError, match=r"no attribute 'weight': table\.to_dense\(\) gives the whole table\."):
        bag.weight  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'wait'"):
        bag.wait  # noqa: B018
    assert not hasattr(bag, "weight")


# -- as torch has it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("offsets", [[0, 2, 4], [0, 0, 3], [0]])
def test_ids_after_the_last_offset_are_in_no_bag(mode, offsets):
    table, ids = FullEmbedding(NUM_IDS, DIM, generator=seeded()), torch.tensor([1, 2, 3, 4, 5, 6])
    found = EmbeddingBag(table, mode=mode, include_last_offset=True)(ids, torch.tensor(offsets))
    expected = EmbeddingBag(table, mode=mode)(ids[: offsets[-1]], torch.tensor(offsets[:-1], dtype=torch.int64))
    assert torch.equal(found, expected)
    if mode == "sum":  # in this mode and in float32 torch agrees; in others it has them in the last bag
        last = {"mode": mode, "include_last_offset": True}
        theirs = torch.nn.functional.embedding_bag(ids, table.to_dense(), torch.tensor(offsets), **last)
        torch.testing.assert_close(found.detach(), theirs)


def test_a_bag_is_moved_and_drawn_again_with_its_table():
    bag = EmbeddingBag(FullEmbedding(NUM_IDS, DIM, generator=seeded()), mode="sum", device="meta", dtype=torch.float64)
    assert {(each.device.type, each.dtype) for each in bag.parameters()} == {("meta", torch.float64)}
    bag.to_empty(device="cpu").reset_parameters(torch.Generator().manual_seed(0))
    assert torch.equal(bag.table.to_dense(), FullEmbedding(NUM_IDS, DIM, generator=seeded()).double().to_dense())
