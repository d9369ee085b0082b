"""The compiled lookup is the plain definition, forward to the bit and back."""

import copy
import os
import subprocess
import sys
import threading
import weakref

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call

from cce import compiled
from cce.indexing.sources import OwnRow
from cce.kernels import Bags, LaunchPlan, Layout, Lookup
from cce.kernels.cpu import gradients, lookup
from cce_lab.variants import FirstRowsEmbedding
from helpers.linear_tables import NUM_IDS, TABLES, assert_same_sums, clustered, look_up, plain, seeded, some_ids

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")

every_table = pytest.mark.parametrize("make", TABLES.values(), ids=TABLES.keys())


def gradient(table, vectors, upstream):
    return torch.autograd.grad(vectors, table.codebook, upstream)[0]


def upstream_of(ids, dim, dtype=torch.float32):
    return torch.randn(*ids.shape, dim, generator=seeded(3)).to(dtype)


# -- the definition ----------------------------------------------------------------------------------------------------


def assert_same_gradient(found, expected):
    assert torch.equal(found.to_dense(), expected.to_dense())


@pytest.mark.slow
@every_table
@pytest.mark.parametrize(("padding_idx", "num_ids"), [(None, 250), (5, 600)])
def test_vectors_and_gradients_have_the_bits_of_the_definition(make, padding_idx, num_ids):
    table, ids = make(padding_idx=padding_idx), some_ids(num_ids)
    ids[::7] = 5
    upstream = upstream_of(ids, table.embedding_dim)
    vectors, expected = table(ids), plain(table, ids)
    assert table.look_up.plan is not None
    assert_same_sums(vectors, expected, table)
    assert_same_gradient(gradient(table, vectors, upstream), gradient(table, expected, upstream))


@pytest.mark.parametrize("name", ["full", "cce", "robe", "ce-sum", "hash-embedding of 3", "cce of sums"])
@pytest.mark.parametrize("dim", [1, 3, 7, 20, 64])
def test_vectors_of_any_length(name, dim):
    table, ids = TABLES[name](d=dim), some_ids(300)
    vectors, expected = table(ids), plain(table, ids)
    upstream = upstream_of(ids, dim)
    assert_same_sums(vectors, expected, table)
    assert_same_gradient(gradient(table, vectors, upstream), gradient(table, expected, upstream))


@pytest.mark.parametrize("batch", [0, 1, 255, 256, 257, 5000])
@pytest.mark.parametrize("sparse", [False, True])
def test_batches_of_any_size(batch, sparse):
    table, ids = TABLES["cce"](padding_idx=3, sparse=sparse), some_ids(batch)
    vectors, expected = table(ids), plain(table, ids)
    upstream = upstream_of(ids, 16)
    assert vectors.shape == (batch, 16)
    assert torch.equal(vectors, expected)
    assert_same_gradient(gradient(table, vectors, upstream), gradient(table, expected, upstream))


@pytest.mark.parametrize("name", ["cce", "cce with two helpers"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_float_types(name, dtype):
    """Stored in the type, summed in float32 at least: only the last rounding may show."""
    table, ids = TABLES[name]().to(dtype), some_ids(300)
    exact = copy.deepcopy(table).double()
    vectors, upstream = table(ids), upstream_of(ids, 16, dtype)
    assert vectors.dtype is dtype
    assert torch.equal(vectors, plain(table, ids))
    found, expected = gradient(table, vectors, upstream), gradient(exact, plain(exact, ids), upstream.double())
    assert found.dtype is dtype
    torch.testing.assert_close(found.double(), expected, rtol=torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


@every_table
def test_a_sparse_gradient_is_coalesced_in_order_and_equal_to_the_dense_one(make):
    ids = some_ids(400)
    ids[::5] = 5
    dense, sparse = make(padding_idx=5), make(padding_idx=5, sparse=True)
    upstream = upstream_of(ids, 16)
    expected, found = gradient(dense, dense(ids), upstream), gradient(sparse, sparse(ids), upstream)
    rows = found.indices()[0]
    assert found.is_coalesced()
    assert (rows.diff() > 0).all()
    named, weights = dense.lookup(ids[ids != 5])
    used = torch.unique(named if weights is None else named[weights != 0])
    assert torch.equal(rows, used)  # and none of padding
    assert_same_gradient(found, expected)


def test_a_sparse_gradient_of_padding_alone_has_no_rows():
    table = TABLES["cce"](padding_idx=7, sparse=True)
    assert gradient(table, table(torch.tensor([7, 7])), torch.ones(2, 16)).indices().shape == (1, 0)


# -- strides -----------------------------------------------------------------------------------------------------------


def test_ids_codebooks_and_gradients_need_not_be_contiguous():
    table = TABLES["cce"]()
    ids = some_ids(40, 30).T[::3]
    spread = torch.zeros(len(table.codebook), 8)[:, ::2].copy_(table.codebook.detach()).requires_grad_()
    assert not spread.is_contiguous()
    vectors = functional_call(table, {"codebook": spread}, (ids,))
    expected = plain(table, ids)
    assert torch.equal(vectors, expected)
    upstream = torch.randn(16, *ids.shape, generator=seeded(1)).permute(1, 2, 0)
    found = torch.autograd.grad(vectors, spread, upstream)[0]
    assert torch.equal(found, gradient(table, expected, upstream))


# -- torch's machinery -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # which torch itself uses here
def test_forward_mode():
    table, ids = TABLES["cce"](padding_idx=5), some_ids(300)
    tangent = torch.randn(table.codebook.shape, generator=seeded(2))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(table.codebook.detach(), tangent)
        found = forward_ad.unpack_dual(functional_call(table, {"codebook": dual}, (ids,))).tangent
    assert torch.equal(found, plain(table, ids, tangent))


def test_inside_a_transform_of_something_else_the_gradient_of_the_codebook_is_not_lost():
    table, ids, x = TABLES["cce"](), some_ids(5), torch.ones(5, 16)
    torch.func.grad(lambda x: (table(ids) * x).sum())(x).sum().backward()
    assert torch.equal(table.codebook.grad, gradient(table, plain(table, ids), x))
    scales = torch.arange(3.0)
    torch.testing.assert_close(
        torch.vmap(lambda s: table(ids) * s)(scales), torch.stack([table(ids) * s for s in scales])
    )


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_vectors_are_the_same(mode):
    table, ids = TABLES["cce"](padding_idx=5), some_ids(300)
    expected = table(ids).detach()
    with mode():
        vectors = table(ids)
    assert not vectors.requires_grad
    assert torch.equal(vectors, expected)


def test_a_default_device_does_not_catch_the_vectors():
    table, ids = TABLES["cce"](sparse=True), some_ids(30)
    expected = plain(table, ids).detach()
    with torch.device("meta"):
        vectors = table(ids)
        vectors.backward(torch.ones(30, 16, device="cpu"))
    assert torch.equal(vectors, expected)
    assert table.codebook.grad.device.type == "cpu"


class RowsOfNothing:
    """A table of very many rows that take no memory."""

    sparse = False

    def __init__(self, num_rows):
        self.codebook = torch.empty(num_rows, 0)

    def layout(self):
        return Layout(5, 1, 1, 0, len(self.codebook), (OwnRow(5),))

    def modules(self):
        return iter(())


def test_a_codebook_of_too_many_rows_for_int32_goes_to_plain_torch():
    for num_rows, is_compiled in ((2**31 + 1, False), (2**31, True)):
        table = RowsOfNothing(num_rows)
        look_up_rows = Lookup([table])
        assert look_up_rows(torch.tensor([[3]])).shape == (1, 0)
        assert (look_up_rows.plan is not None) is is_compiled


def test_ids_without_values_in_memory_are_not_for_compiled_loops():
    table = TABLES["hash"]().to("meta")
    assert table(torch.zeros(3, dtype=torch.int64, device="meta")).shape == (3, 16)
    assert table.look_up.plan is None


# -- what is behind an address -----------------------------------------------------------------------------------------


def check(table, ids):
    assert torch.equal(table(ids), plain(table, ids))


@pytest.mark.slow
def test_a_lookup_follows_everything_that_moves():
    table, ids = (FirstRowsEmbedding(NUM_IDS, 16, num_rows=20, first_factor=15, generator=seeded()), some_ids(300))
    check(table, ids)
    table.cluster(generator=seeded(1))  # other rows, pointers of another type
    check(table, ids)
    table.helper.reset_parameters(seeded(2))
    check(table, ids)
    check(table.double(), ids)
    check(table.float().share_memory(), ids)
    check(copy.deepcopy(table), ids)
    other = clustered(kind=FirstRowsEmbedding, first_factor=15)
    check(other, ids)
    table.load_state_dict(other.state_dict())
    check(table, ids)
    assert torch.equal(table(ids), other(ids))
    table.padding_idx = int(ids[0])
    assert not table(ids)[0].any()


def test_a_lookup_follows_index_state_that_was_sent_to_another_process():
    """Sending moves the storage to shared memory, under the same tensor, and frees the old memory."""
    table, ids = TABLES["cce of two bytes"](), some_ids(300)
    before, address = table(ids), table.assignments.pointers.words.data_ptr()
    for tensor in (table.assignments.pointers.words, table.helper.seeds):
        tensor.share_memory_()
    assert table.assignments.pointers.words.data_ptr() != address
    assert torch.equal(table(ids), before)
    assert table.look_up.plan.is_current([table.codebook])


def test_a_table_and_its_plan_are_freed_at_once():
    table = TABLES["cce"]()
    table(some_ids(300)).sum().backward()
    held = weakref.ref(table)
    del table
    assert held() is None


def test_a_codebook_that_is_too_small_is_refused():
    table, ids = TABLES["cce"](), some_ids(30)
    check(table, ids)
    with pytest.raises(ValueError, match="codebook must have at least 160 rows, got 159"):
        functional_call(table, {"codebook": torch.zeros(159, 4)}, (ids,))
    with pytest.raises(ValueError, match=r"codebook must have shape \(160, 4\), got \(100, 4\)"):
        look_up(table.look_up.plan, ids.unsqueeze(1), [torch.zeros(100, 4)])


def test_bags_that_changed_before_the_gradient_are_refused():
    table, ids = TABLES["cce"](), some_ids(6)
    bags = Bags(torch.tensor([0, 2, 6]), 2)
    vectors = look_up(LaunchPlan([table.layout()]), ids, [table.codebook], bags=bags)
    bags.offsets.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        vectors.sum().backward()


# -- ids ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["full", "cce", "robe", "ce-sum of digits"])
@pytest.mark.parametrize("wrong", [-1, NUM_IDS, 2**40, -(2**63)])
def test_an_id_out_of_range_is_named_wherever_it_stands(name, wrong):
    ids = some_ids(600)
    ids[500] = wrong
    with pytest.raises(IndexError, match=rf"ids must lie in \[0, {NUM_IDS}\), got {wrong}\."):
        TABLES[name]()(ids)


# -- several tables ----------------------------------------------------------------------------------------------------


def three_tables(**options):
    return [TABLES[name](**options) for name in ("cce", "full", "robe of odd blocks")]


def test_several_tables_at_once_are_the_tables_side_by_side():
    tables, ids = three_tables(), some_ids(300, 3)
    plan = LaunchPlan([table.layout() for table in tables])
    codebooks = [table.codebook for table in tables]
    vectors = look_up(plan, ids, codebooks)
    expected = torch.cat([plain(table, ids[:, place]) for place, table in enumerate(tables)], dim=1)
    assert torch.equal(vectors, expected)
    upstream = upstream_of(ids[:, 0], 48)
    found, right = (torch.autograd.grad(v, codebooks, upstream) for v in (vectors, expected))
    assert all(map(torch.equal, found, right))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_tables_that_are_not_trained_get_no_gradient(sparse, frozen):
    tables, ids = three_tables(), some_ids(300, 3)
    tables[frozen].requires_grad_(False)
    plan = LaunchPlan([table.layout() for table in tables])
    vectors = look_up(plan, ids, [table.codebook for table in tables], sparse=sparse)
    vectors.sum().backward()
    for place, table in enumerate(tables):
        if place == frozen:
            assert table.codebook.grad is None
        else:
            expected = gradient(table, plain(table, ids[:, place]), torch.ones(300, 16))
            assert torch.equal(table.codebook.grad.to_dense(), expected)


def test_one_codebook_may_serve_two_features():
    table, ids = TABLES["cce"](), some_ids(300, 2)
    plan = LaunchPlan([table.layout(), table.layout()])
    look_up(plan, ids, [table.codebook, table.codebook]).sum().backward()
    torch.testing.assert_close(table.codebook.grad, gradient(table, plain(table, ids), torch.ones(300, 2, 16)))


# -- threads and processes ---------------------------------------------------------------------------------------------


@pytest.fixture
def small_shares(monkeypatch):
    """Work is handed to threads however little there is."""
    monkeypatch.setattr(lookup, "PARALLEL_SLOTS", 1)
    monkeypatch.setattr(gradients, "PARALLEL_SLOTS", 1)


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("names", [("cce",), ("robe",), ("cce", "full", "hash"), ("ce-sum", "pq of residuals")])
def test_any_number_of_threads_gives_the_same_bits(num_threads, small_shares, names, sparse):
    results = []
    for threads in (1, 2, 3):
        num_threads(threads)
        tables = [TABLES[name](padding_idx=2) for name in names]
        ids = some_ids(12_000, len(names))
        plan = LaunchPlan([table.layout() for table in tables])
        codebooks = [table.codebook for table in tables]
        vectors = look_up(plan, ids, codebooks, sparse=sparse)
        gradients = torch.autograd.grad(vectors, codebooks, upstream_of(ids[:, 0], vectors.shape[1]))
        results.append([vectors, *[gradient.to_dense() for gradient in gradients]])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))
    expected = torch.cat([plain(table, ids[:, place]) for place, table in enumerate(tables)], dim=1)
    assert torch.equal(results[0][0], expected)


def test_a_wrong_id_in_another_thread_s_range_is_named(num_threads, small_shares):
    num_threads(3)
    ids = some_ids(12_000)
    ids[11_999] = NUM_IDS
    with pytest.raises(IndexError, match=f"got {NUM_IDS}"):
        TABLES["cce"]()(ids)


def test_several_python_threads_may_use_one_table(num_threads, small_shares):
    num_threads(2)
    table, results = TABLES["cce"](), {}

    def work(who):
        ids = some_ids(6000, seed=who)
        vectors = table(ids)
        found, expected = gradient(table, vectors, vectors), gradient(table, plain(table, ids), vectors)
        results[who] = torch.equal(vectors, plain(table, ids)) and torch.allclose(found, expected, atol=1e-4)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)


PROGRAM = """
import os, torch, cce
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(2)
table = cce.embeddings.ClusteredEmbedding(700, 16, num_rows=20, generator=torch.Generator().manual_seed(0))
ids = torch.arange(700).repeat(20)
expected = table(ids).detach()
table(ids).sum().backward()  # the threads of the parent exist

class Rows(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, place):
        with torch.no_grad():
            return table(ids)

for workers in (0, 2):
    context = "fork" if workers else None
    for batch in DataLoader(Rows(), batch_size=2, num_workers=workers, multiprocessing_context=context):
        assert torch.equal(batch, expected.expand(2, -1, -1))
child = os.fork()
if child == 0:
    vectors = table(ids).detach()
    os._exit(0 if (vectors.numpy() == expected.numpy()).all() else 1)  # torch's own threads do not survive a fork
assert os.waitpid(child, 0)[1] == 0
assert torch.equal(table(ids), expected)
print("done")
"""


@pytest.mark.slow
def test_workers_that_are_forked_after_a_lookup_look_up_too_and_the_interpreter_ends():
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "done\n"


SMALL_WORK = """
import os, torch, cce
torch.set_num_threads(1)
table = cce.create_embedding("cce-paper", 100_000, 16, num_params=128_000, seed=0, sparse={sparse})
tables = cce.EmbeddingCollection({{"user": 100_000}}, 16, method="cce-paper", cap=128_000, seed=0, sparse={sparse})
ids, grad, offsets = torch.arange(2048), torch.ones(2048, 16), torch.arange(0, 2049)
rows = cce.create_embedding("cce", 100_000, 16, seed=0)
optimizer = cce.optim.Adagrad(rows, lr=0.1)

def work():
    table.zero_grad()
    table(ids).backward(grad)
    rows(ids).backward(grad)
    optimizer.step()
    for inputs in ((ids.unsqueeze(1),), (ids, offsets)):
        tables.zero_grad()
        tables(*inputs).backward(grad.unsqueeze(1))
    table(ids.int())

for _ in range(20):  # compiling starts a thread of its own, and so does the rounding of a whole table at first
    work()
torch.set_num_threads(2)  # torch starts its other thread when it is first asked for
before = len(os.listdir("/proc/self/task"))
work()
print(len(os.listdir("/proc/self/task")) - before)
torch.zeros(1 << 20)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="counts threads as Linux lists them")
@pytest.mark.parametrize("sparse", [False, True])
def test_small_work_wakes_no_other_thread(sparse):
    """One that has to be waited for while another program has its core: 6 ms instead of 0.2."""
    code = SMALL_WORK.format(sparse=sparse)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout.split() == ["0", "1"], result.stderr
