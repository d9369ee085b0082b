"""Data whose best model is known: Zipf's ids, clusters that decide alone, and an oracle nobody beats."""

import math

import pytest
import torch
from scipy.stats import chisquare

from cce.data import SyntheticClicks, prepare
from helpers.draws import seeded
from helpers.scores import binary_cross_entropy

SIZES = (50, 30, 20)


def planted(sizes=SIZES, *, seed=0, **options):
    return SyntheticClicks(sizes, num_clusters=4, generator=seeded(seed), **options)


@pytest.fixture(scope="module")
def clicks():
    return planted()


@pytest.fixture(scope="module")
def sample(clicks):
    return clicks.sample(40_000, generator=seeded(1))


def expected_bce_and_its_noise(probabilities, logits, num_rows):
    """Of logits on labels drawn from the probabilities: the mean loss, and the standard deviation of its average."""
    loss_of_one, loss_of_zero = -torch.nn.functional.logsigmoid(logits), -torch.nn.functional.logsigmoid(-logits)
    mean = probabilities * loss_of_one + (1 - probabilities) * loss_of_zero
    variance = probabilities * (1 - probabilities) * (loss_of_one - loss_of_zero).square()
    return float(mean.mean()), math.sqrt(float(variance.mean()) / num_rows)


@pytest.mark.slow
def test_equal_seeds_give_equal_rows_and_other_seeds_others(clicks, sample):
    same = planted().sample(40_000, generator=seeded(1))
    for field in ("ids", "labels", "probabilities"):
        assert torch.equal(getattr(sample, field), getattr(same, field))
    assert not torch.equal(clicks.sample(40_000, generator=seeded(2)).ids, sample.ids)
    assert not torch.equal(planted(seed=5).vectors[0], clicks.vectors[0])


def test_one_generator_gives_new_rows_each_time(clicks):
    g = seeded()
    assert not torch.equal(clicks.sample(100, generator=g).ids, clicks.sample(100, generator=g).ids)


@pytest.mark.slow
@pytest.mark.parametrize("zipf", [0.0, 0.7, 1.0, 1.5])
def test_ids_follow_zipfs_law(zipf):
    ids = planted((40, 25), zipf=zipf).sample(100_000, generator=seeded(3)).ids
    for column, size in zip(ids.unbind(1), (40, 25), strict=True):
        weights = [rank**-zipf for rank in range(1, size + 1)]
        expected = [100_000 * weight / sum(weights) for weight in weights]
        assert chisquare(torch.bincount(column, minlength=size).tolist(), expected).pvalue > 0.001


@pytest.mark.slow
def test_features_are_drawn_independently():
    first, second = planted((4, 3)).sample(50_000, generator=seeded(4)).ids.unbind(1)
    joint = torch.bincount(first * 3 + second, minlength=12).view(4, 3).double()
    expected = joint.sum(1, keepdim=True) * joint.sum(0) / joint.sum()
    assert chisquare(joint.flatten(), expected.flatten(), ddof=5).pvalue > 0.001


def test_the_logit_is_the_sum_of_dot_products_over_pairs_of_features(clicks, sample):
    for ids, probability in zip(sample.ids[:50].tolist(), sample.probabilities[:50].tolist(), strict=True):
        user, item, place = (clicks.vectors[f][clicks.clusters[f][x]] for f, x in enumerate(ids))
        logit = float(user @ item + user @ place + item @ place)
        assert probability == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-12)


@pytest.mark.slow
def test_clusters_decide_alone(clicks, sample):
    combination = sum(4**f * clicks.clusters[f][sample.ids[:, f]] for f in range(3))
    assert len(combination.unique()) == 64
    for value in combination.unique():
        probabilities = sample.probabilities[combination == value]
        torch.testing.assert_close(probabilities, probabilities[:1].expand_as(probabilities), rtol=1e-12, atol=0)
    assert len(sample.ids.unique(dim=0)) > 10_000  # though the ids are far more


def test_logits_spread_by_three():
    clicks = SyntheticClicks((3_000,) * 3, num_clusters=2_000, latent_dim=6, zipf=0.0, generator=seeded())
    logits = torch.logit(clicks.sample(20_000, generator=seeded(1)).probabilities)
    assert logits.std().item() == pytest.approx(3, rel=0.03)


def test_labels_are_as_frequent_as_their_probabilities_say(sample):
    order = sample.probabilities.argsort()
    for rows in order.split(4_000):
        probabilities = sample.probabilities[rows]
        noise = float((probabilities * (1 - probabilities)).mean() / len(rows)) ** 0.5
        assert abs(float(sample.labels[rows].double().mean() - probabilities.mean())) < 4 * noise + 1e-9


def test_the_oracles_bce_is_the_expected_entropy(sample):
    logits = torch.logit(sample.probabilities)
    entropy, noise = expected_bce_and_its_noise(sample.probabilities, logits, len(logits))
    assert abs(sample.oracle_bce - entropy) < 4 * noise


def test_a_model_that_knows_the_probabilities_scores_as_the_oracle(sample):
    logits = torch.logit(sample.probabilities)
    assert binary_cross_entropy(logits, sample.labels) == pytest.approx(sample.oracle_bce, rel=1e-12)


@pytest.mark.parametrize("wrong", [lambda x: 0.8 * x, lambda x: 1.25 * x, lambda x: x + 0.3, lambda x: 0 * x])
def test_a_model_that_is_off_scores_worse_than_the_oracle(sample, wrong):
    logits = torch.logit(sample.probabilities)
    assert binary_cross_entropy(wrong(logits), sample.labels) > sample.oracle_bce + 0.002


def test_no_rows_are_a_sample_too(clicks):
    assert clicks.sample(0).ids.shape == (0, 3)


def test_one_planted_feature_decides_by_the_sum_of_its_vector():
    clicks = planted(num_informative=1)
    sample = clicks.sample(50, generator=seeded(1))
    for ids, probability in zip(sample.ids.tolist(), sample.probabilities.tolist(), strict=True):
        logit = float(clicks.vectors[0][clicks.clusters[0][ids[0]]].sum())
        assert probability == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-12)


def test_features_beyond_the_planted_ones_are_noise():
    clicks = planted(num_informative=2)
    sample = clicks.sample(50, generator=seeded(1))
    for ids, probability in zip(sample.ids.tolist(), sample.probabilities.tolist(), strict=True):
        user, item = (clicks.vectors[f][clicks.clusters[f][ids[f]]] for f in range(2))
        assert probability == pytest.approx(1 / (1 + math.exp(-float(user @ item))), rel=1e-12)


@pytest.mark.slow
def test_dense_numbers_add_to_the_logit():
    clicks = planted(num_dense=4)
    sample = clicks.sample(2000, generator=seeded(1))
    assert (sample.dense.shape, sample.dense.dtype) == ((2000, 4), torch.float32)
    without = planted(num_dense=4)
    without.dense_weights.zero_()
    difference = torch.logit(sample.probabilities) - torch.logit(
        without.sample(2000, generator=seeded(1)).probabilities
    )
    torch.testing.assert_close(difference, (sample.dense @ clicks.dense_weights).double(), rtol=1e-6, atol=1e-6)
    assert clicks.dense_weights.abs().min() > 0


@pytest.mark.slow
@pytest.mark.parametrize("num_informative", [1, 2, 26])
def test_logits_spread_by_three_whatever_is_planted(num_informative):
    clicks = SyntheticClicks(
        (3_000,) * 26, num_clusters=2_000, num_informative=num_informative, zipf=0.0, generator=seeded()
    )
    logits = torch.logit(clicks.sample(20_000, generator=seeded(1)).probabilities)
    assert logits.std().item() == pytest.approx(3, rel=0.07)


def test_without_drift_times_change_nothing():
    early, late = (planted().sample(500, times=torch.full((500,), t), generator=seeded(1)) for t in (0.0, 1.0))
    assert torch.equal(early.probabilities, late.probabilities)


def test_with_drift_a_share_of_the_ids_moves_once_to_another_cluster_each_at_its_time():
    clicks, ids = planted((4000, 30), drift=0.5), torch.arange(4000)
    at = [clicks.clusters_of(0, ids, torch.full((4000,), t, dtype=torch.float64)) for t in (0.0, 0.5, 1.0)]
    assert torch.equal(at[0], clicks.clusters[0])  # at the beginning nobody has
    moved = [(clusters != at[0]).double().mean().item() for clusters in at]
    assert moved == pytest.approx([0, 0.25, 0.5], abs=0.03)
    assert (at[2] == at[1])[at[1] != at[0]].all()  # whoever has moved stays


def test_the_oracle_of_a_stream_knows_who_has_moved():
    clicks = planted((200, 100), drift=1.0)
    times = torch.linspace(0, 1, 20_000, dtype=torch.float64)
    stream = clicks.sample(20_000, times=times, generator=seeded(1))
    still = torch.sigmoid(clicks._logits(stream.ids, torch.zeros_like(times)))  # an oracle that missed it all
    old = float(torch.nn.functional.binary_cross_entropy(still, stream.labels.double()))
    assert stream.oracle_bce < old - 0.2
    assert (stream.probabilities[:50] == still[:50]).double().mean() > 0.9  # hardly anyone has, at the beginning


def test_ids_are_born_and_die_and_new_ones_are_unlike_rare_ones():
    clicks = SyntheticClicks((50, 30), num_clusters=40, turnover=2.0, drift=0.5, generator=seeded())
    times = torch.arange(60_000, dtype=torch.float64) / 60_000
    sample = clicks.sample(60_000, times=times, generator=seeded(1))
    born = sample.ids[:, 0] >= 50
    thirds = [float(part.double().mean()) for part in born.chunk(3)]
    assert thirds == sorted(thirds)
    assert thirds[0] == pytest.approx(1 / 3, abs=0.1)  # of a frequent id's phase
    assert thirds[2] == 1.0
    for column, size in zip(sample.ids.unbind(1), (50, 30), strict=True):
        for slot in range(size):
            lives = column[column % size == slot]
            assert torch.equal(lives, lives.sort().values)  # nobody rises from the dead
    rare, frequent = (clicks.clusters[0].view(3, 50)[:, ids].flatten() for ids in (slice(5, None), slice(0, 5)))
    assert rare.max() < 10 <= frequent.max()
    assert math.isfinite(sample.oracle_bce)


def test_the_days_of_a_stream_are_data_sets_with_the_same_ids_of_64_bits(tmp_path):
    options = {"num_rows": 2_000, "vocabulary_sizes": (50, 30), "turnover": 3.0, "days": 3}
    days = [prepare(None, tmp_path / f"{day}", kind="synthetic", day=day, progress=False, **options) for day in (1, 2)]
    ids = [next(iter(day.loader("train", batch_size=2_000))).ids for day in days]
    assert days[0].splits == ("train",)
    assert days[0].schema.vocabulary_sizes == {"c0": None, "c1": None}
    known = torch.isin(ids[1][:, 0], ids[0][:, 0]).double().mean()
    assert 0.2 < known < 0.8  # each id is replaced once a day
    assert int(ids[0].min()) < -(2**60)
    assert 0.2 < days[0].manifest["oracle_bce"] < 0.69
    with pytest.raises(ValueError, match=r"day must lie in \[1, 4\), got 4"):
        prepare(None, tmp_path / "4", kind="synthetic", day=4, **options)
