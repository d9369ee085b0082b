"""Names of a package that are loaded when they are first used (PEP 562), each listed where type checkers see it."""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, by the imports under `if TYPE_CHECKING:` in its `__init__.py`.

    The names that these import from the package and its modules, and they alone, are public.
    """
    module = sys.modules[package]

    @cache
    def homes() -> dict[str, str]:
        tree = ast.parse(Path(str(module.__file__)).read_bytes())
        blocks = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        imports = (line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom))
        own = (line for line in imports if f"{line.module}.".startswith(f"{package}."))
        return {alias.name: str(line.module) for line in own for alias in line.names}

    def load(name: str) -> Any:
        home = homes().get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
        setattr(module, name, value)
        return value

    return load, lambda: sorted(homes())
