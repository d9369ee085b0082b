"""The least-squares figure, small: which series it has, and that its claims say what the series say."""

import pytest

from cce_lab.theory import FIGURES
from cce_lab.theory.figures.least_squares import QUICK, Sizes


@pytest.fixture(scope="module")
def figure():
    return FIGURES["least-squares"](quick=True)


def test_full_size_is_the_papers():
    sizes = Sizes()
    assert (sizes.num_examples, sizes.num_embeddings, sizes.embedding_dim) == (10_000, 1_000, 10)
    assert sizes.others == (200, 50)


@pytest.mark.slow
def test_every_run_is_followed_by_a_baseline(figure):
    assert [line.name for line in figure.series] == [
        "dense",
        "T*",
        "sparse, one 1",
        "T* in 20 rows",
        "sparse, two 1s",
        "T* in 20 rows, two 1s",
        "sparse, random codebook",
        "T* in 40 rows, two 1s",
        "sparse, one 1, k = 40",
        "T* in 40 rows",
        "sparse, one 1, k = 10",
        "T* in 10 rows",
        "sparse, one 1, from T*",
        "sparse, exact refits",
        "sparse, exact refits, k = 40",
        "sparse, exact refits, k = 10",
    ]
    assert [line.is_reference for line in figure.series] == [*([False, True] * 6), *([False] * 4)]
    for line in figure.series:
        assert len(line.x) == QUICK.num_steps + 1
        assert line.is_reference or line.y[0] == pytest.approx(0 if line.name.endswith("from T*") else 1)


@pytest.mark.slow
def test_claims_say_what_the_series_say(figure):
    lines = {line.name: line.y for line in figure.series}
    held = {claim.text: claim.held for claim in figure.claims}
    assert len(held) == 16
    assert held["all versions improve with more steps"]
    assert held["dense CCE goes to zero"] is (lines["dense"][-1] < 0.01)
    assert held["two 1s do better than one"] is (lines["sparse, two 1s"][-1] < lines["sparse, one 1"][-1])
    better = lines["sparse, random codebook"][-1] < lines["sparse, one 1"][-1]
    assert held["after many steps a random codebook does better than k-means (notes)"] is better
    again = lines["sparse, one 1, from T*"]
    stays = "started from T*, sparse CCE stays where its first clusters of T* put it (ours)"
    assert held[stays] is (again[-1] <= 1.05 * again[1])
    reached = "sparse CCE with k = {} comes down to k-means of T* in {}"
    for run, rows, text in (
        ("sparse, one 1", "20 rows", reached.format(20, "20 rows")),
        ("sparse, one 1, k = 40", "40 rows", reached.format(40, "40 rows")),
        ("sparse, one 1, k = 10", "10 rows", reached.format(10, "10 rows")),
        ("sparse, two 1s", "20 rows, two 1s", reached.format(20, "20 rows, both with two 1s")),
        ("sparse, one 1", "40 rows", reached.format(20, "the 40 rows it has in all")),
        ("sparse, two 1s", "40 rows, two 1s", reached.format(20, "40 rows, both with two 1s")),
    ):
        assert held[text] is (lines[run][-1] <= 1.05 * lines[f"T* in {rows}"][0]), text
    for run, k in (("", 20), (", k = 40", 40), (", k = 10", 10)):
        text = f"sparse CCE with exact refits and k = {k} comes down to k-means of T* in {k} rows"
        assert held[text] is (lines[f"sparse, exact refits{run}"][-1] <= 1.05 * lines[f"T* in {k} rows"][0]), text
