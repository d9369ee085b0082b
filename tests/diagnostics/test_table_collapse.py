"""Collapse is told in numbers and in words."""

import math

import pytest
import torch

import cce
from cce.diagnostics import diagnose_tables
from cce_lab.variants import CircularEmbedding, SummedEmbedding


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def table(kind=cce.embeddings.ClusteredEmbedding, **options):
    return kind(2_000, 8, num_rows=16, num_columns=4, generator=generator(), **options)


@pytest.mark.slow
def test_fresh_pointers_are_random_ones_that_never_moved():
    found = cce.diagnostics.diagnose_collapse(table(), generator=generator())
    assert found.entropies == pytest.approx(found.random)
    assert found.random[0] == pytest.approx(math.log(16), rel=0.02)
    assert found.moved == 0
    assert found.verdict == "never clustered: its pointers are the hashes that it began with"


@pytest.mark.slow
def test_learned_pointers_that_use_rows_evenly_are_healthy():
    """Clusters of one size: their pointers are as spread as random ones, and yet learned."""
    learned = table()
    ids = torch.arange(2_000)
    learned.assignments.write(ids, learned.assignments(ids).flip(0))
    found = cce.diagnostics.diagnose_collapse(learned, generator=generator())
    assert found.moved > 0.9
    assert found.verdict == "healthy: rows are used as evenly as by random pointers"


@pytest.mark.slow
def test_a_collapse_right_after_a_clustering_shows_in_its_dead_rows():
    """The vectors are then centroids, and product quantisation of them finds the same pointers."""
    clustered = table()
    clustered.cluster(generator=generator(1))
    rows = clustered.assignments.pointers.to_tensor()
    rows[:, 0] = 0
    clustered.assignments.pointers.write(0, rows)
    assert (
        cce.diagnostics.diagnose_collapse(clustered, generator=generator(2)).verdict
        == "collapsed: a column uses 1 of its 16 rows"
    )


@pytest.mark.slow
def test_after_a_clustering_the_table_is_what_product_quantisation_gives():
    clustered = table()
    with torch.no_grad():  # skewed vectors, so that learned pointers differ from random ones
        clustered.codebook.copy_(clustered.codebook.sign() * clustered.codebook.abs().pow(4) * 1e3)
    clustered.cluster(generator=generator(1))
    found = cce.diagnostics.diagnose_collapse(clustered, generator=generator(2))
    assert found.entropies == pytest.approx(found.golden, rel=0.05)
    assert "healthy" in found.verdict


@pytest.mark.slow
def test_a_column_that_uses_one_row_has_collapsed():
    broken = table()
    pointers = broken.assignments(torch.arange(2_000))
    pointers[:, 1] = 3
    broken.assignments.write(torch.arange(2_000), pointers)
    found = cce.diagnostics.diagnose_collapse(broken, generator=generator())
    assert found.entropies[0] == 0
    assert found.dead_rows == (0, 15, 0, 0)
    assert found.verdict == "collapsed: a column uses 1 of its 16 rows"


@pytest.mark.slow
def test_columns_that_repeat_each_other_have_collapsed():
    broken = table()
    pointers = broken.assignments(torch.arange(2_000))
    broken.assignments.write(torch.arange(2_000), pointers[:, :1].expand(-1, 4))
    with torch.no_grad():  # vectors whose columns are independent
        broken.codebook.view(4, 2, 16, 2)[:, 1] *= 30
    found = cce.diagnostics.diagnose_collapse(broken, generator=generator())
    assert found.entropies[1] == pytest.approx(found.entropies[0], abs=0.01)
    assert "two columns say nearly the same" in found.verdict


def test_printed_it_shows_entropies_bounds_and_the_verdict():
    text = str(cce.diagnostics.diagnose_collapse(table(), generator=generator()))
    assert text.startswith("H1: ")
    assert "random pointers 2.7" in text
    assert "dead rows: 0 of 64" in text


@pytest.mark.slow
def test_every_way_to_combine_is_judged_by_its_own_quantiser():
    for kind in (SummedEmbedding, CircularEmbedding):
        found = cce.diagnostics.diagnose_collapse(table(kind), generator=generator())
        assert len(found.golden) == 2


def test_other_tables_are_rejected():
    with pytest.raises(TypeError, match="must be a ClusteredEmbedding to be judged, got ProductQuantized"):
        cce.diagnostics.diagnose_collapse(cce.embeddings.ProductQuantizedEmbedding(10, 4, num_rows=2))


def test_only_learned_ids_count():
    partial = table(num_learned=100)
    assert cce.diagnostics.diagnose_collapse(partial, generator=generator()).random[1] <= math.log(100) + 1e-9


@pytest.mark.slow
def test_all_tables_of_a_model_that_can_learn_are_judged():
    model = torch.nn.ModuleDict({"a": table(), "b": cce.embeddings.FullEmbedding(9, 4), "c": table(num_learned=0)})
    found = diagnose_tables(model, seed=3)
    assert list(found) == ["a"]
    assert found["a"] == cce.diagnostics.diagnose_collapse(model["a"], generator=generator(3))
    values = found["a"].to_dict()
    assert (values["num_rows"], values["dead_rows"]) == (found["a"].num_rows, sum(found["a"].dead_rows))
    assert (values["entropies"], values["verdict"]) == (found["a"].entropies, found["a"].verdict)
