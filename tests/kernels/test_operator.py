"""The operator that `torch.compile` sees is the lookup."""

import pytest
import torch

import cce
from cce import compiled
from cce.kernels import Lookup
from helpers.linear_tables import NUM_IDS, TABLES, assert_same_sums, plain, seeded, some_ids

pytestmark = pytest.mark.skipif(not compiled.available, reason="compiled loops need numba")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()


def graphs_of(table, *batches):
    """Compile, look up every batch, and keep the graphs."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    compiled_table = torch.compile(table, backend=backend, fullgraph=True, dynamic=True)
    return graphs, [compiled_table(ids) for ids in batches]


def targets(graphs):
    return [str(node.target) for graph in graphs for node in graph.graph.nodes]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["cce", "cce of four bits", "robe of odd blocks", "ce-sum of digits", "full", "hash with signs"]
)
def test_a_compiled_table_uses_the_operator_and_gives_the_same(name):
    table, ids = TABLES[name](padding_idx=5), some_ids(20, 3)
    graphs, (vectors,) = graphs_of(table, ids)
    assert any("cce.look_up" in target for target in targets(graphs))
    assert_same_sums(vectors, plain(table, ids), table)
    upstream = torch.randn(vectors.shape, generator=seeded(1))
    found, expected = (torch.autograd.grad(v, table.codebook, upstream)[0] for v in (vectors, plain(table, ids)))
    torch.testing.assert_close(found, expected)


@pytest.mark.slow
def test_other_batches_and_another_clustering_need_no_other_graph():
    table = cce.embeddings.ClusteredEmbedding(NUM_IDS, 16, num_rows=20, generator=seeded())
    batches = [some_ids(n) for n in (300, 20, 257)]
    graphs, found = graphs_of(table, *batches)
    assert all(torch.equal(vectors, plain(table, ids)) for vectors, ids in zip(found, batches, strict=True))
    before = len(graphs)
    again = torch.compile(table, backend="aot_eager", fullgraph=True, dynamic=True)
    again(batches[0])
    table.cluster(generator=seeded(1))
    with torch.compiler.set_stance("fail_on_recompile"):
        assert torch.equal(again(batches[1]), plain(table, batches[1]))
    assert before == 1


@pytest.mark.slow
def test_a_compiled_table_refuses_wrong_ids():
    table = torch.compile(TABLES["cce"](), backend="aot_eager", fullgraph=True)
    with pytest.raises(IndexError, match=f"got {NUM_IDS}"):
        table(torch.tensor([3, NUM_IDS]))


@pytest.mark.slow
def test_an_exported_program_runs_without_our_operators():
    table, ids = TABLES["cce"](), some_ids(20)
    exported = torch.export.export(table, (ids,))
    assert "cce" not in " ".join(targets([exported.graph_module]))
    assert torch.equal(exported.module()(ids), plain(table, ids))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cce", "robe", "full"])
def test_torch_s_own_checks_of_an_operator(name):
    tables = [TABLES[name](), TABLES["cce of two bytes"](padding_idx=3)]
    look_up = Lookup(tables)
    ids = torch.arange(512).view(2, 256).t()  # a whole block of ids that differ: all that is saved for backward is set
    arguments = (ids, [table.codebook for table in tables], look_up.handle, True)
    torch.library.opcheck(torch.ops.cce.look_up.default, arguments)


@pytest.mark.slow
def test_a_compiled_collection_is_one_operator_and_gives_the_same():
    collection = cce.EmbeddingCollection({"a": NUM_IDS, "b": NUM_IDS, "c": 9}, 16, method="cce-paper", cap=1600, seed=0)
    ids = some_ids(600, 3) % torch.tensor([NUM_IDS, NUM_IDS, 9])
    graphs, (vectors,) = graphs_of(collection, ids)
    assert sum("cce.look_up" in target for target in targets(graphs)) == 1
    assert torch.equal(vectors, collection(ids))
    upstream = torch.randn(vectors.shape, generator=seeded(1))
    parameters = list(collection.parameters())
    found, expected = (torch.autograd.grad(v, parameters, upstream) for v in (vectors, collection(ids)))
    assert all(map(torch.equal, found, expected))


@pytest.mark.slow
def test_a_compiled_collection_follows_what_changes():
    collection = cce.EmbeddingCollection({"a": NUM_IDS, "b": NUM_IDS}, 16, method="cce-paper", cap=1600, seed=0)
    fast, ids = torch.compile(collection, backend="aot_eager", fullgraph=True), some_ids(300, 2)
    fast(ids)
    collection.cluster(generator=seeded())
    assert torch.equal(fast(ids), collection(ids))
    collection.tables["a"].padding_idx = int(ids[0, 0])
    assert not fast(ids)[0, 0].any()
    collection.tables["b"] = cce.embeddings.FullEmbedding(NUM_IDS, 16, generator=seeded())
    assert torch.equal(fast(ids), collection(ids))


@pytest.mark.slow
def test_tables_that_changed_their_shape_before_backward_are_named_and_not_written_to():
    table = cce.embeddings.ClusteredEmbedding(NUM_IDS, 16, num_rows=20, generator=seeded())
    vectors = torch.compile(table, backend="aot_eager")(some_ids(300))
    table.codebook_shape = table.codebook_shape._replace(num_rows=10)
    table.assignments.resize(10)
    table.helper.num_rows = 10
    table.codebook.data = torch.randn(table.codebook_shape.matrix)
    table(some_ids(3))
    with pytest.raises(RuntimeError, match="the tables changed their shapes between forward and backward"):
        vectors.sum().backward()
