"""What tests of runs may ask for."""

import pytest

from helpers.raw_runs import train_on_raw


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The folder of a run on raw rows, beside its data set; tests write nothing to it."""
    return train_on_raw(tmp_path_factory.mktemp("raw-run"))
