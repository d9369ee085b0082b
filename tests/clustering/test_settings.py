"""Settings are the paper's, and say what they are told wrong."""

import dataclasses

import pytest

from cce.clustering import ClusterSettings


def test_the_defaults_are_the_papers():
    settings = ClusterSettings()
    assert (settings.max_iter, settings.points_per_row) == (50, 256)
    assert settings.tol == 0
    assert (settings.init, settings.weighted) == ("random", False)


def test_settings_cannot_be_changed_behind_a_tables_back():
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'max_iter'"):
        ClusterSettings().max_iter = 3
