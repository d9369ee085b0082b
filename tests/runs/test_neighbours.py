"""The nearest values of a feature, beside cosines that are computed one by one."""

import numpy as np
import pytest
import torch

from cce.runs import load_run, nearest_values, neighbours


def plain(run, feature, num_candidates):
    """Every pair by itself."""
    vectors = run.vectors(feature)(torch.arange(1, num_candidates + 1))
    names = run.vocabularies[feature].values(range(1, num_candidates + 1))
    found = []
    for index in range(min(12, num_candidates)):
        cosines = {
            other: float(vectors[index] @ vectors[at] / np.linalg.norm(vectors[index]) / np.linalg.norm(vectors[at]))
            for at, other in enumerate(names)
            if at != index
        }
        found.append((names[index], sorted(cosines.values(), reverse=True)[:5], cosines))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("num_candidates", [4096, 9])
def test_neighbours_are_those_of_the_greatest_cosine_among_frequent_values(trained, num_candidates, monkeypatch):
    monkeypatch.setattr(neighbours, "BLOCK", 7)
    run = load_run(trained)
    found = nearest_values(run, "item", num_candidates=num_candidates)
    wanted = plain(run, "item", min(len(run.vocabularies["item"]), num_candidates))
    assert [each.id for each in found] == list(range(1, len(wanted) + 1))
    assert len(found) == min(12, num_candidates)
    for each, (value, greatest, cosines) in zip(found, wanted, strict=True):
        assert each.value == value
        assert [cosine for _, cosine in each.nearest] == pytest.approx(greatest, abs=1e-6)
        assert [cosines[name] for name, _ in each.nearest] == pytest.approx(greatest, abs=1e-6)


@pytest.mark.slow
def test_bad_counts_and_unknown_features_are_one_line(trained):
    run = load_run(trained)
    with pytest.raises(ValueError, match=r"num_neighbours must lie in \[1, 2\*\*31\), got 0\."):
        nearest_values(run, "item", num_neighbours=0)
    with pytest.raises(ValueError, match="feature must be one of the run's, got 'itm'"):
        nearest_values(run, "itm")
    assert nearest_values(run, "item", num_candidates=1)[0].nearest == ()


def test_a_vector_of_zeros_has_cosine_zero():
    assert np.array_equal(neighbours._unit(np.array([[0.0, 0.0], [3.0, 4.0]])), [[0, 0], [0.6, 0.8]])
