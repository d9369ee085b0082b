"""One clustering: exact for every id, all or nothing, frugal, and what the settings say."""

import copy
import multiprocessing
import os
import resource
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

import cce
from cce.embeddings.cluster_step import stage_clustering
from cce_lab.variants import ResidualHelpersEmbedding
from helpers.draws import seeded


def state_of(table):
    return {name: tensor.clone() for name, tensor in table.state_dict().items()}


def same(one, other):
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


class Broken(Exception):
    pass


@pytest.mark.parametrize("call", range(1, 8))
def test_an_error_at_any_call_for_vectors_leaves_the_old_table(call):
    table = cce.embeddings.ClusteredEmbedding(
        500, 8, num_rows=10, settings=cce.clustering.ClusterSettings(block_size=200), generator=seeded()
    )
    before, calls = state_of(table), []

    def source(ids):
        calls.append(len(ids))
        if len(calls) == call:
            raise Broken
        return table.embed(ids).detach()

    with pytest.raises(Broken):
        stage_clustering(table, source, None, seeded()).apply()
    assert same(before, table.state_dict())


def cluster_interrupted_after(delay, table):
    timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        table.cluster(generator=seeded(1))
        threading.Event().wait(10)  # the interrupt is still to come
    except KeyboardInterrupt:
        timer.join()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "native"])
def test_an_interrupt_at_any_moment_leaves_the_old_table_or_the_new_one(backend):
    settings = cce.clustering.ClusterSettings(backend=backend, max_iter=10)
    reference = cce.embeddings.ClusteredEmbedding(3000, 8, num_rows=50, settings=settings, generator=seeded())
    old = state_of(reference)
    copy.deepcopy(reference).cluster()  # everything is compiled
    started = time.perf_counter()
    reference.cluster(generator=seeded(1))
    new, outcomes, seconds = state_of(reference), set(), time.perf_counter() - started
    delays = [seconds * share / 8 for share in range(1, 16)]
    longer = [seconds * 2**power for power in range(1, 8)]  # a busy machine may need much more time
    for delay in [0.0005, *delays, *longer]:
        if delay > delays[-1] and "new" in outcomes:
            break
        table = cce.embeddings.ClusteredEmbedding(3000, 8, num_rows=50, settings=settings, generator=seeded())
        cluster_interrupted_after(delay, table)
        found = [name for name, state in (("old", old), ("new", new)) if same(state, table.state_dict())]
        assert len(found) == 1
        outcomes.update(found)
    assert outcomes == {"old", "new"}


def test_the_table_is_never_in_memory():
    """Asked for blocks no larger than the settings allow, and for the sample once."""
    table = cce.embeddings.ClusteredEmbedding(
        10_000,
        8,
        num_rows=4,
        num_columns=4,
        settings=cce.clustering.ClusterSettings(block_size=512, points_per_row=100),
        generator=seeded(),
    )
    asked = []

    def source(ids):
        asked.append(len(ids))
        return table.embed(ids).detach()

    stage_clustering(table, source, None, seeded()).apply()
    assert asked[:4] == [400] * 4  # the sample, once for each column
    assert max(asked[4:]) == 512
    assert sum(asked[4:]) == 10_000


@pytest.mark.slow
def test_a_source_is_asked_for_small_pieces_of_a_large_block():
    table = cce.embeddings.ClusteredEmbedding(100_000, 64, num_rows=4, num_columns=4, generator=seeded())
    asked = []

    def source(ids):
        asked.append(len(ids))
        return table.embed(ids).detach()

    stage_clustering(table, source, None, seeded()).apply()
    assert max(asked) <= (1 << 19) // 64
    assert sum(asked) == 4 * 1024 + 100_000  # the sample, once for each column, and all ids


def peak_of_an_event(num_ids, dim, kind):
    """In a process of its own: bytes by which an event raises the peak above the module."""
    settings = cce.clustering.ClusterSettings(max_iter=3, points_per_row=64)
    table, small = (kind(size, dim, num_rows=300, settings=settings, generator=seeded()) for size in (num_ids, 5_000))
    small.cluster()  # everything is loaded and compiled
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    table.cluster(generator=seeded())
    pointers = table.assignments.pointers.nbytes
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, pointers


@pytest.mark.slow
@pytest.mark.parametrize("kind", [cce.embeddings.ClusteredEmbedding, ResidualHelpersEmbedding])
def test_an_event_needs_little_more_memory_than_the_new_pointers_and_the_sample(kind):
    num_ids, dim = 600_000, 64
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as fresh:  # another peak would hide this one
        above, pointers = fresh.submit(peak_of_an_event, num_ids, dim, kind).result()
    sample = 64 * 300 * dim * 4
    bound = pointers + 64e6 + 2 * sample  # the sample, and the column that k-means works on
    assert bound < num_ids * dim * 4  # the whole table would show
    assert above < bound


def test_weighted_clustering_follows_the_frequent_ids():
    """Two frequent far-apart ids and many rare ones: weights pull both centroids to the frequent ids."""
    errors = {}
    for weighted in (False, True):
        settings = cce.clustering.ClusterSettings(weighted=weighted, init="k-means++")
        table = cce.embeddings.ClusteredEmbedding(400, 4, num_rows=8, settings=settings, generator=seeded())
        counts = torch.ones(400, dtype=torch.int64)
        counts[:8] = 100_000
        before = table.to_dense()
        table.cluster(counts=counts, generator=seeded(1))
        errors[weighted] = (table.to_dense()[:8] - before[:8]).norm()
    assert errors[True] < 0.5 * errors[False]


@pytest.mark.slow
def test_half_precision_tables_cluster_too():
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        table = cce.embeddings.ClusteredEmbedding(500, 8, num_rows=10, generator=seeded()).to(dtype)
        table.cluster(generator=seeded(1))
        assert table.codebook.dtype == dtype
        assert torch.isfinite(table.codebook).all()
