"""The compiled path and the plain one."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from cce import compiled
from cce.optim import fused


@pytest.fixture(params=["loops", "plain"])
def path(request, monkeypatch):
    """The test runs on compiled loops, and as an optimizer does without numba."""
    if request.param == "plain":
        monkeypatch.setattr(fused, "compiled", SimpleNamespace(available=False))
    elif not compiled.available:
        pytest.skip("numba is not installed")
    return request.param


@pytest.fixture
def runs(monkeypatch):
    """Every pass of compiled loops: the number of parameters in it."""
    if not compiled.available:
        pytest.skip("numba is not installed")
    found = []
    run = fused.Tables.run

    def counted(self, step):
        found.append(len(self.parameters))
        run(self, step)

    monkeypatch.setattr(fused.Tables, "run", counted)
    return found


@pytest.fixture
def plain(monkeypatch):
    """`with plain():` does without numba."""

    @contextmanager
    def without():
        with monkeypatch.context() as patch:
            patch.setattr(fused, "compiled", SimpleNamespace(available=False))
            yield

    return without
