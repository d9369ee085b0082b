"""Tables hold whatever the width of their pointers: bytes, lookups, clusterings, copies and checkpoints."""

import copy
import io
import pickle

import pytest
import torch

import cce
from cce.signals import uninterrupted
from cce_lab.variants import FirstRowsEmbedding
from helpers.draws import seeded
from helpers.linear_tables import plain

WIDTHS = {2: 1, 16: 4, 100: 7, 256: 8, 1_024: 10, 65_536: 16, 65_537: 32}
NUM_IDS, DIM = 701, 8  # an odd number: where pointers share bytes, the last byte is not full

every_width = pytest.mark.parametrize("num_rows", WIDTHS)
every_width_clustered = pytest.mark.parametrize(
    "num_rows", [2, 100, 256, *(pytest.param(wide, marks=pytest.mark.slow) for wide in (65_536, 65_537))]
)


def make(num_rows, *, kind=cce.embeddings.ClusteredEmbedding, **options):
    settings = cce.clustering.ClusterSettings(max_iter=2)
    options = {"num_columns": 1, "settings": settings, "generator": seeded(), **options}
    return kind(NUM_IDS, DIM, num_rows=num_rows, **options)


def clustered(num_rows, **options):
    table = make(num_rows, **options)
    table.cluster(generator=seeded(1))
    return table


def state_of(table):
    return {name: tensor.clone() for name, tensor in table.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# -- bytes -------------------------------------------------------------------------------------------------------------


def stored_nbytes(table, path):
    """What pointers and seeds take in a file: bytes of what was written, without any of our counting."""
    table.assignments.pointers.words.numpy().tofile(path)
    seeds = [module.seeds for module in table.modules() if hasattr(module, "seeds")]
    return path.stat().st_size + sum(tensor.numel() * 8 for tensor in seeds)


@every_width
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (cce.embeddings.ClusteredEmbedding, {"num_columns": 1}),
        (cce.embeddings.ClusteredEmbedding, {"num_columns": 4}),
        (cce.embeddings.ProductQuantizedEmbedding, {"num_columns": 2}),
    ],
)
def test_every_count_of_bytes_is_that_of_the_storage(num_rows, kind, options, tmp_path):
    table = kind(NUM_IDS, DIM, num_rows=num_rows, generator=seeded(), **options)
    stored = stored_nbytes(table, tmp_path / "stored")
    arguments = kind.complete_options(options | {"num_rows": num_rows})
    planned = kind.footprint(NUM_IDS, DIM, arguments)
    (entry,) = cce.summary(torch.nn.Sequential(table)).tables
    assert table.pointer_nbytes == planned.pointer_nbytes == entry.pointer_nbytes == stored
    assert table.nbytes == planned.nbytes == entry.nbytes == stored + table.codebook.nbytes
    assert table.assignments.pointers.bits == WIDTHS[num_rows]


@every_width_clustered
def test_a_clustered_table_of_learning_to_collide_is_counted_by_its_width(num_rows):
    table = cce.embeddings.CollidingEmbedding(NUM_IDS, DIM, num_rows=num_rows, generator=seeded())
    table.cluster(generator=seeded(1))
    assert table.pointer_nbytes == -(-NUM_IDS * WIDTHS[num_rows] // 8) + 3


@pytest.mark.parametrize("nbytes", [300, 400, 700, 1_000, 2_000, 5_000])
@pytest.mark.parametrize("method", ["cce-paper", "pq"])
def test_a_budget_in_bytes_is_kept_and_used_with_packed_pointers(method, nbytes):
    options = {"num_columns": 1}
    table = cce.create_embedding(method, NUM_IDS, DIM, nbytes=nbytes, seed=0, **options)
    assert table.nbytes <= nbytes
    (planned,) = cce.collection.plan_tables(
        {"a": NUM_IDS}, DIM, method=method, nbytes=nbytes, options={method: options}
    ).tables
    assert (table.pointer_nbytes, table.nbytes) == (planned.pointer_nbytes, planned.nbytes)
    one_more = options | {"num_rows": table.assignments.num_rows + 1}
    more = type(table).footprint(NUM_IDS, DIM, type(table).complete_options(one_more))
    assert more.nbytes > nbytes


# -- lookups and clusterings -------------------------------------------------------------------------------------------


@every_width_clustered
def test_lookups_and_gradients_are_those_of_plain_torch_before_and_after_a_clustering(num_rows):
    table, ids = make(num_rows), torch.randint(0, NUM_IDS, (900,), generator=seeded(2))
    for _ in range(2):
        found, expected = table(ids), plain(table, ids)
        assert torch.equal(found, expected)
        upstream = torch.randn(found.shape, generator=seeded(3))
        gradients = [torch.autograd.grad(vectors, table.codebook, upstream)[0] for vectors in (found, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-4)  # hundreds of values, summed in another order
        pooled = cce.embeddings.EmbeddingBag(table, mode="sum")(ids.view(300, 3))
        torch.testing.assert_close(pooled, expected.view(300, 3, DIM).sum(1))
        table.cluster(generator=seeded(1))


@every_width_clustered
def test_a_clustering_finds_the_same_in_memory_and_shared(num_rows):
    held, shared = make(num_rows), make(num_rows)
    shared.share_memory()
    for table in (held, shared):
        table.cluster(generator=seeded(1))
    assert same(state_of(held), state_of(shared))
    assert shared.assignments.pointers.is_shared


@every_width_clustered
def test_a_clustering_that_is_staged_and_not_applied_changes_nothing(num_rows):
    table = make(num_rows)
    before = state_of(table)
    staged = table.stage(generator=seeded(1))
    assert same(before, state_of(table))
    with uninterrupted():
        staged.apply()
    assert not torch.equal(before["assignments.pointers"], table.state_dict()["assignments.pointers"])


@pytest.mark.parametrize(("factor", "num_rows"), [(20, 16), (9, 2), (4, 4), (2, 9)])
def test_a_width_may_change_at_the_first_clustering_and_a_checkpoint_of_after_it_loads(factor, num_rows):
    options = {"kind": FirstRowsEmbedding, "first_factor": factor}
    table = make(num_rows, **options)
    assert int(table.assignments(torch.arange(NUM_IDS)).max()) == factor * num_rows - 1
    table.cluster(generator=seeded(1))
    for other in (make(num_rows, **options), make(num_rows)):
        other.load_state_dict(table.state_dict())
        assert same(state_of(table), state_of(other))
        assert torch.equal(other(torch.arange(NUM_IDS)), table(torch.arange(NUM_IDS)))


# -- copies and checkpoints --------------------------------------------------------------------------------------------


def saved(table):
    file = io.BytesIO()
    torch.save(table.state_dict(), file)
    file.seek(0)
    other = make(table.num_rows, generator=seeded(9))
    other.load_state_dict(torch.load(file))
    return other


def pickled(table):
    return pickle.loads(pickle.dumps(table))


@pytest.mark.slow
@every_width_clustered
@pytest.mark.parametrize("copied", [copy.deepcopy, pickled, saved])
def test_a_copy_goes_on_with_the_same_bits(num_rows, copied):
    tables = [clustered(num_rows)]
    tables.append(copied(tables[0]))
    assert same(*map(state_of, tables))
    ids = torch.randint(0, NUM_IDS, (50,), generator=seeded(2))
    for table in tables:
        table(ids).square().sum().backward()
        with torch.no_grad():
            table.codebook -= 0.1 * table.codebook.grad
        table.cluster(generator=seeded(3))
    assert same(*map(state_of, tables))
    assert torch.equal(*(table(ids) for table in tables))
