"""Every table starts with mean 0 and the variance that its `start_scale` names, and can be trained from there."""

import math
from functools import partial

import pytest
import torch
from scipy import stats
from torch import nn

import cce
from cce.budget import FULL_SIZED
from cce.embeddings import METHODS
from cce.embeddings.initialization import new_parameter, normal_, output_variance, projection_, start_variance
from helpers.draws import seeded

NUM_IDS, DIM, COMPRESSION = 1200, 16, 4
PRODUCTS = ("ce-mult", "tt", "dhe", "mixed-dim", "collide", "low-rank")  # of which one factor carries the scale
WANTED = {"uniform": 1 / math.sqrt(3 * DIM), "dlrm": 1 / math.sqrt(3 * NUM_IDS), 0.01: 0.01}


@pytest.mark.parametrize("variance", [1e-4, 1 / 48, 2.0])
def test_a_table_is_normal_with_mean_zero_and_the_variance_asked_for(variance):
    numbers = torch.empty(500, 40)
    normal_(numbers, variance=variance, generator=seeded())
    numbers = numbers.flatten().double()
    assert abs(numbers.mean().item()) < 4 * math.sqrt(variance / 20_000)
    assert numbers.var().item() == pytest.approx(variance, rel=4 * math.sqrt(2 / 20_000))
    assert stats.kstest(numbers.numpy() / math.sqrt(variance), "norm").pvalue > 1e-4


@pytest.mark.parametrize("fill", [partial(normal_, variance=1.0), projection_])
def test_values_do_not_depend_on_the_default_device_or_the_type(fill):
    types = (torch.float32, torch.float64, torch.float16, torch.float32)
    table, same, half, other = (torch.empty(5, 7, dtype=dtype) for dtype in types)
    with torch.device("meta"):
        fill(table, generator=seeded(1))
    fill(same, generator=seeded(1))
    fill(half, generator=seeded(1))
    fill(other, generator=seeded(2))
    assert torch.equal(same, table.double())
    assert torch.equal(half, table.half())
    assert not torch.equal(other, table)


def test_a_new_parameter_is_where_torch_would_put_it():
    assert new_parameter((2, 3)).requires_grad
    assert new_parameter((2, 3), dtype=torch.float64).dtype is torch.float64
    assert new_parameter((2, 3), device="meta").is_meta
    with torch.device("meta"):
        assert new_parameter((2, 3)).is_meta


@pytest.mark.parametrize(("narrow", "wide"), [(1, 16), (2, 16), (8, 16), (16, 16), (4, 5)])
def test_every_row_of_a_projection_has_squared_norm_wide_over_narrow(narrow, wide):
    rows = torch.empty(narrow, wide, dtype=torch.float64)
    projection_(rows, generator=seeded())
    assert torch.allclose(rows.square().sum(1), torch.full((narrow,), wide / narrow, dtype=torch.float64), rtol=1e-6)


@pytest.mark.parametrize("narrow", [1, 4, 16])
def test_a_narrow_table_times_a_projection_keeps_the_variance(narrow):
    variance = output_variance(16)
    table, projection = torch.empty(20_000, narrow, dtype=torch.float64), torch.empty(narrow, 16, dtype=torch.float64)
    normal_(table, variance=variance, generator=seeded())
    projection_(projection, generator=seeded(1))
    outputs = table @ projection
    assert outputs.square().mean().item() == pytest.approx(variance, rel=0.03)
    assert abs(outputs.mean().item()) < 0.02 * math.sqrt(variance)


def make(method, start_scale, *, seed=0, **options):
    budget = {} if method in FULL_SIZED else {"compression": COMPRESSION}
    options |= {"counts": torch.full((NUM_IDS,), 2)} if method == "cce" else {}  # all ids have rows
    return cce.create_embedding(method, NUM_IDS, DIM, seed=seed, start_scale=start_scale, **budget, **options)


@pytest.mark.slow
@pytest.mark.parametrize("start_scale", ["dlrm", 0.01])
@pytest.mark.parametrize("method", METHODS)
def test_values_start_with_the_standard_deviation_asked_for(method, start_scale):
    tables = [make(method, start_scale, seed=seed).to_dense().double() for seed in range(8)]
    values = torch.stack(tables)
    assert values.square().mean().sqrt().item() == pytest.approx(WANTED[start_scale], rel=0.05)
    assert abs(values.mean().item()) < 0.05 * WANTED[start_scale]


@pytest.mark.parametrize("method", [method for method in METHODS if method != "quantized"])  # which is only fitted
def test_zero_is_exact_and_leaves_a_gradient_to_begin_with(method):
    table = make(method, "zero")
    assert not table.to_dense().any()
    wanted = torch.randn(NUM_IDS, DIM, generator=torch.Generator().manual_seed(0))
    ids = torch.arange(NUM_IDS)
    optimizer = cce.optim.SGD(table, lr=1e-5)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (table(ids) - wanted).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]


@pytest.mark.parametrize("start_scale", ["zero", 0.01])
@pytest.mark.parametrize("method", METHODS)
def test_everything_else_that_is_random_does_not_depend_on_it(method, start_scale):
    """Hash functions, pointers and projections: what is neither scaled nor zero is the same to the bit."""
    one, other = make(method, "uniform"), make(method, start_scale)
    trained = {name for name, _ in one.named_parameters()}
    trained |= {"codes.values"} if start_scale == "zero" else set()
    trained |= {"fitted.scale", "rows.numbers"}  # follow what is trained
    trained |= {"rows.records"} if start_scale == "zero" else set()
    for name, tensor in other.state_dict().items():
        if name not in trained:
            assert torch.equal(tensor, one.state_dict()[name])
    if start_scale != "zero" and method != "ce-mult":  # there only some rows of the codebook are scaled
        for name, tensor in other.state_dict().items():
            if name == "rows.numbers" or not tensor.numel():
                continue
            ratio = tensor.double() / one.state_dict()[name].double() if name in trained else torch.ones(1)
            assert torch.allclose(ratio[:1], ratio, rtol=1e-5)


@pytest.mark.parametrize("method", PRODUCTS)
def test_one_factor_of_a_product_carries_the_scale(method):
    one, other = make(method, "uniform"), make(method, 1e-4)
    unscaled = [name for name, tensor in other.state_dict().items() if torch.equal(tensor, one.state_dict()[name])]
    assert len([name for name, _ in one.named_parameters() if name in unscaled]) >= (method != "ce-mult")
    if method == "ce-mult":
        first = other.split.rows_per_column[0]
        assert torch.equal(one.codebook[first:], other.codebook[first:])
        assert other.codebook[:first].abs().max() < 0.01 * one.codebook[:first].abs().max()


def test_the_default_is_uniform_and_only_another_start_is_printed():
    default = cce.create_embedding("hash", NUM_IDS, DIM, compression=4, seed=0)
    assert torch.equal(make("hash", "uniform").to_dense(), default.to_dense())
    assert "start_scale" not in repr(default)
    assert "start_scale='dlrm'" in repr(make("hash", "dlrm"))
    assert "start_scale=0.5" in repr(make("full", 0.5))


def test_a_full_table_starts_as_in_dlrm_also_in_a_collection():
    for table in (
        cce.embeddings.FullEmbedding(NUM_IDS, DIM),
        cce.EmbeddingCollection({"a": NUM_IDS}, DIM, method="full").tables["a"],
        cce.EmbeddingCollection({"a": NUM_IDS}, DIM, method="hash", cap=NUM_IDS * DIM).tables["a"],
    ):
        assert table.to_dense().std().item() == pytest.approx(WANTED["dlrm"], rel=0.05)
    given = cce.EmbeddingCollection({"a": NUM_IDS}, DIM, method="full", start_scale="uniform").tables["a"]
    assert given.to_dense().std().item() == pytest.approx(WANTED["uniform"], rel=0.05)


def test_a_table_that_is_kept_in_full_has_the_start_as_well():
    table = cce.create_embedding("cce", 100, DIM, num_params=1600, start_scale="zero")
    assert isinstance(table, cce.embeddings.FullEmbedding)
    assert not table.to_dense().any()


def test_the_variances_are_those_of_the_uniform_distributions():
    assert start_variance(10, 4, "uniform") == pytest.approx((2 / math.sqrt(4)) ** 2 / 12)
    assert start_variance(10, 4, "dlrm") == pytest.approx((2 / math.sqrt(10)) ** 2 / 12)
    assert start_variance(10, 4, "zero") == 0
    assert start_variance(10, 4, 0.3) == pytest.approx(0.09)


def test_a_collection_starts_all_of_its_tables_so_unless_a_method_says_otherwise():
    sizes = {"user": 5000, "item": 40}
    tables = cce.EmbeddingCollection(sizes, DIM, method="hash", cap=1600, start_scale="dlrm", seed=0).tables
    for name, size in sizes.items():
        assert tables[name].to_dense().std().item() == pytest.approx(1 / math.sqrt(3 * size), rel=0.1)
    mixed = cce.EmbeddingCollection(
        sizes, DIM, method="hash", cap=1600, start_scale="zero", options={"hash": {"start_scale": 0.5}}, seed=0
    ).tables
    assert mixed["user"].to_dense().std().item() == pytest.approx(0.5, rel=0.1)
    assert not mixed["item"].to_dense().any()
    with pytest.raises(ValueError, match=r"start_scale must be one of uniform, dlrm, zero, or a number; got 'tiny'\."):
        cce.EmbeddingCollection(sizes, DIM, cap=1600, start_scale="tiny")


def test_a_compressed_model_and_a_bag_start_so():
    model = nn.Sequential(nn.EmbeddingBag(5000, DIM))
    counts = {"0": torch.full((5000,), 2)}
    cce.compress(model, method="cce", compression=10, names="0", counts=counts, start_scale=0.02, seed=0)
    bags = model(torch.arange(5000).view(-1, 1))
    assert bags.std().item() == pytest.approx(0.02, rel=0.1)
