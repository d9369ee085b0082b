"""Names that are loaded when they are first used."""

import sys

import pytest

PACKAGE = """
from typing import TYPE_CHECKING
from cce.lazy import lazy_names
if TYPE_CHECKING:
    from collections.abc import Callable
    from made import heavy
    from made.parts import Wheel
SIZE = 3
__getattr__, __dir__ = lazy_names(__name__)
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    (tmp_path / "made").mkdir()
    for name, text in {"__init__": PACKAGE, "parts": "class Wheel: pass", "heavy": "import made.parts"}.items():
        (tmp_path / "made" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("made")
    for name in ("made", "made.parts", "made.heavy"):
        sys.modules.pop(name, None)


def test_a_module_is_loaded_with_the_first_of_its_names(made):
    assert (made.SIZE, "made.parts" in sys.modules) == (3, False)
    assert made.Wheel is sys.modules["made.parts"].Wheel
    assert "Wheel" in vars(made)  # from now on it is found at once
    assert "made.heavy" not in sys.modules
    assert made.heavy.__name__ == "made.heavy"


def test_what_is_not_public_is_an_attribute_error(made):
    assert dir(made) == ["Wheel", "heavy"]  # a module is public as well
    for name in ("Callable", "colour"):
        with pytest.raises(AttributeError, match=f"^module 'made' has no attribute '{name}'$"):
            getattr(made, name)
