"""A fit is a value."""

import dataclasses

import pytest
import torch

from cce.clustering import KMeans


def test_a_fit_cannot_be_changed():
    fit = KMeans(torch.zeros(2, 3), (2.0, 1.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        fit.inertias = ()
