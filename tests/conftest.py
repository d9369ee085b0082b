"""What every test may ask for."""

import os
import signal
import sys
from pathlib import Path

import pytest
import torch

from cce import plugins
from cce.data import SOURCES
from cce.embeddings import METHODS
from cce.evaluation import METRICS
from cce.models import MODELS
from cce.testing import SLOW_TESTS, EmbeddingContract

os.environ.setdefault(
    "CCE_COMPILED", "1"
)  # what is not compiled yet is waited for: tests time and count compiled loops

LONG = {  # files that train much or start many processes begin first, so that none of them is left for the end
    *("own_loop", "examples", "docs", "service_page", "ranks", "streaming", "trainer", "finalizing", "refinalizing"),
    *("lightning", "transformers", "agreement", "browser", "running", "sweep", "tuning", "demo", "measured_memory"),
    "background",
}

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # here, and so in processes that tests start


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items):
    """Mark the slow tests of the contract, which has no marks of its own, and begin with the longest files."""
    for item in items:
        cls = getattr(item, "cls", None) or object
        if issubclass(cls, EmbeddingContract) and item.originalname in SLOW_TESTS:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONG)


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory):
    """A home folder of the tests' own: the user's may be unwritable, has settings in it, and Ray would write there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def registries():
    """Registries and plug-ins as they were, when a test is over: pages and examples register names of their own."""
    before = [(registry, dict(registry)) for registry in (METHODS, MODELS, METRICS, SOURCES, plugins._loaded)]
    yield
    for name in plugins._loaded.keys() - before[-1][1].keys():
        sys.modules.pop(name, None)  # a module registers again when it is loaded again
    for registry, names in before:
        registry.clear()
        registry.update(names)


@pytest.fixture
def num_threads():
    """`num_threads(n)` sets torch's threads, and the test's end sets them back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def real_data():
    """`real_data(name)`: the path of a real data set, or a skipped test."""

    def find(name: str) -> Path:
        beside = Path(__file__).resolve().parents[2] / "shared" / "data"
        folder = Path(os.environ.get("CCE_DATA", beside))
        if not (folder / name).exists():
            pytest.skip(f"{name} is not there: set CCE_DATA to the folder of the real data sets")
        return folder / name

    return find
