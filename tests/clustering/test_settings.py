"""Settings are the paper's, and say what they are told wrong."""

import dataclasses
import re

import pytest

from cce.clustering import ClusterSettings


def test_the_defaults_are_the_papers():
    settings = ClusterSettings()
    assert (settings.max_iter, settings.points_per_row) == (50, 256)
    assert settings.tol == 0
    assert (settings.init, settings.sampling, settings.weighted) == ("random", "uniform", False)


def test_settings_cannot_be_changed_behind_a_tables_back():
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'max_iter'"):
        ClusterSettings().max_iter = 3


@pytest.mark.parametrize("name", ["max_iter", "points_per_row", "block_size"])
@pytest.mark.parametrize("value", [0, -1, 2**31])
def test_a_number_outside_its_range_is_rejected(name, value):
    with pytest.raises(ValueError, match=re.escape(f"{name} must lie in [1, 2**31), got {value}.")):
        ClusterSettings(**{name: value})


def test_an_unknown_init_is_rejected_with_the_known_ones():
    with pytest.raises(ValueError, match=re.escape("init must be one of random, k-means++; got 'best'.")):
        ClusterSettings(init="best")


def test_negative_tolerances_are_rejected():
    with pytest.raises(ValueError, match="tol must be a finite number of at least 0, got -1"):
        ClusterSettings(tol=-1)
