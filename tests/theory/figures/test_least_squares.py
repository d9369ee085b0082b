"""The least-squares figure, small: which series it has, and that its claims say what the series say."""

import pytest

from cce.theory.figures import FIGURES
from cce.theory.figures.least_squares import QUICK, Sizes


@pytest.fixture(scope="module")
def figure():
    return FIGURES["least-squares"](quick=True)


def test_full_size_is_the_papers():
    sizes = Sizes()
    assert (sizes.num_examples, sizes.num_embeddings, sizes.embedding_dim) == (10_000, 1_000, 10)


def test_it_has_runs_and_baselines(figure):
    runs = [line.name for line in figure.series if not line.is_reference]
    assert runs == [
        "dense",
        "sparse, one 1",
        "sparse, two 1s",
        "sparse, random codebook",
        "sparse, one 1, k = 10",
        "sparse, one 1, k = 5",
    ]
    assert sum(line.is_level for line in figure.series) == 5
    for line in figure.series:
        assert len(line.x) == QUICK.num_steps + 1
        assert line.is_reference or line.y[0] == pytest.approx(1)


def test_claims_say_what_the_series_say(figure):
    lines = {line.name: line.y for line in figure.series}
    held = {claim.text: claim.held for claim in figure.claims}
    assert held["all versions improve with more steps"]
    assert held["dense CCE goes to the optimum"] is (lines["dense"][-1] < 0.01)
    assert held["two 1s do better than one"] is (lines["sparse, two 1s"][-1] < lines["sparse, one 1"][-1])
    small = lines["sparse, one 1, k = 5"][-1] <= 1.05 * lines["T* in 5 rows"][0]
    assert held["sparse CCE with k = 5 comes down to k-means of T* in k = 5 rows"] is small


def test_a_seed_gives_the_same_numbers(figure):
    assert FIGURES["least-squares"](quick=True) == figure
    assert FIGURES["least-squares"](quick=True, seed=1).series != figure.series
