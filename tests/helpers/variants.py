"""The lab's variants of CCE under their names, for tests that ask for methods by name."""

import pytest

from cce.embeddings import METHODS
from cce_lab.variants import VARIANTS


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for kind in VARIANTS:
        monkeypatch.setitem(METHODS, kind.method, kind)
