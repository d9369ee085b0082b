"""Samples of ids: without repetition, reproducible, fair, and small in memory."""

import pytest
import torch

from cce.clustering import draw_weighted, sample_ids, sampling


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("num_ids", "num_samples"), [(10, 0), (10, 1), (10, 5), (10, 9), (1000, 400), (10**8, 5000)])
def test_samples_are_different_ids_in_rising_order(num_ids, num_samples):
    ids = sample_ids(num_ids, num_samples, generator=seeded(0))
    assert ids.dtype == torch.int64
    assert ids.numel() == num_samples
    assert bool((ids[1:] > ids[:-1]).all())
    assert num_samples == 0 or (ids[0] >= 0 and ids[-1] < num_ids)


@pytest.mark.parametrize("counts", [None, torch.tensor([0, 3, 1, 0])])
def test_all_ids_come_in_order_when_as_many_are_asked_for(counts):
    assert sample_ids(4, 4, counts=counts).tolist() == [0, 1, 2, 3]
    assert sample_ids(4, 9, counts=counts).tolist() == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("num_samples", [3, 9])
def test_every_id_is_equally_likely(num_samples):
    generator = seeded(3)
    draws = torch.cat([sample_ids(12, num_samples, generator=generator) for _ in range(4000)])
    shares = torch.bincount(draws, minlength=12) / 4000
    assert torch.allclose(shares, torch.full((12,), num_samples / 12), atol=0.04)


@pytest.mark.slow
def test_a_first_draw_follows_the_counts():
    generator = seeded(4)
    counts = torch.tensor([1, 0, 2, 7])
    draws = torch.cat([sample_ids(4, 1, counts=counts, generator=generator) for _ in range(4000)])
    assert torch.allclose(torch.bincount(draws, minlength=4) / 4000, counts / 10, atol=0.03)


def test_ids_never_counted_come_last():
    counts = torch.zeros(100)
    counts[[3, 50, 99]] = torch.tensor([1e-6, 1.0, 1e9])
    assert sample_ids(100, 3, counts=counts, generator=seeded(5)).tolist() == [3, 50, 99]
    more = sample_ids(100, 10, counts=counts, generator=seeded(5)).tolist()
    assert len(set(more)) == 10
    assert {3, 50, 99} < set(more)


def test_races_in_blocks_keep_the_heavy_ids(monkeypatch):
    monkeypatch.setattr(sampling, "RACE_BLOCK", 64)
    counts = torch.ones(1000)
    counts[::100] = 1e12
    ids = sample_ids(1000, 40, counts=counts, generator=seeded(6))
    assert ids.numel() == 40
    assert set(range(0, 1000, 100)) <= set(ids.tolist())


def test_a_small_sample_of_a_huge_vocabulary_is_quick_and_small():
    assert sample_ids(2**40, 1000, generator=seeded(7)).max() < 2**40


def test_weights_of_a_sample_sum_to_those_of_all_and_the_heaviest_are_drawn_for_certain():
    weights = torch.rand(5_000, generator=seeded(0)).mul(4).exp()
    weights[7] = 1e6
    totals = []
    for seed in range(40):
        ids, drawn = draw_weighted(weights, 300, generator=seeded(seed))
        assert len(ids.unique()) == 300
        assert torch.equal(ids, ids.sort().values)
        assert drawn[ids == 7].tolist() == [1e6]
        totals.append(float(drawn.sum() - 1e6))
    assert abs(sum(totals) / len(totals) / float(weights.sum() - 1e6) - 1) < 0.02
    ids, drawn = draw_weighted(weights, 6_000)
    assert torch.equal(ids, torch.arange(5_000))
    assert torch.equal(drawn, weights)
