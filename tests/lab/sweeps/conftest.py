"""What tests of experiments may ask for."""

import pytest
import torch

from helpers.runs import tiny_data


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A tiny data set."""
    return tiny_data(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(autouse=True)
def threads_as_before():
    """A run sets the number of threads; the next test finds what it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
