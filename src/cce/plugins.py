"""Plug-ins: Python files and modules that register methods, models, metrics and sources when they are loaded.

Code is loaded only if this process names it (`--plugin`, a recipe, `load_plugins`), or an installed package announces
it with an entry point; never because a saved run mentions it. What `cce prepare` needs to parse its command line has a
group of its own, so that other plug-ins need not be loaded for that. No torch here.
"""

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

PLUGINS = "clustered_embeddings.plugins"
SOURCES = "clustered_embeddings.sources"
_loaded: dict[str, str] = {}  # what was loaded, by name: where it came from


def load_plugins(plugins: Iterable[str | Path] = ()) -> list[str]:
    """Load these plug-ins, each a path to a Python file or the name of a module, and those of installed packages.

    Returns where they are, as the configuration of a run records them: `TrainConfig.plugins`. A plug-in is known by the
    name of its file or module, and is loaded once in a process.
    """
    for line in load_installed():
        warnings.warn(line, stacklevel=2)
    return load_named(plugins)


def load_named(plugins: Iterable[str | Path]) -> list[str]:
    """Load these plug-ins alone, and return where they are."""
    return [_load_one(str(plugin)) for plugin in plugins]


def load_installed(*groups: str) -> list[str]:
    """Load the plug-ins of installed packages; return a line for each that cannot be loaded, which is left out."""
    failures = []
    for entry in (entry for group in groups or (SOURCES, PLUGINS) for entry in entry_points(group=group)):
        try:
            _load(entry.name, f"entry point {entry.value}", entry.load)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - others do without it
            failures.append(f"plug-in {entry.name!r} of {entry.value!r} is left out: {reason_of(error)}")
    return failures


def check_plugins(plugins: Iterable[str]) -> None:
    """Reject plug-ins that are not loaded: to read what a run used must not run code."""
    missing = [plugin for plugin in plugins if plugin_name(plugin) not in _loaded]
    if missing:
        hint = f"--plugin {missing[0]} or cce.plugins.load_plugins, if you know who wrote it"
        raise ValueError(f"plugins must be loaded first, got {missing[0]!r}, which is not: {hint}.")


def plugin_name(plugin: str) -> str:
    """What a plug-in is known by: `tables/ours.py` by `ours`, a module by its name."""
    return Path(plugin).stem if plugin.endswith(".py") else plugin


def run_file(path: Path, argument: str) -> ModuleType:
    """The module of a Python file. `argument` is what named it, for errors."""
    if not path.is_file():
        raise FileNotFoundError(f"{argument} must name a file that is there, got {str(path)!r}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{argument} must name a Python file, got {str(path)!r}.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        got = f"{str(path)!r}: {reason_of(error)}"
        raise ValueError(f"{argument} must name a Python file that can be run, got {got}.") from error
    return module


def _load_one(plugin: str) -> str:
    if plugin.endswith(".py"):
        path = Path(plugin).resolve()
        _load(path.stem, str(path), lambda: _run(path))
        return str(path)
    _load(plugin, plugin, lambda: _import(plugin))
    return plugin


def _load(name: str, origin: str, load: Callable[[], object]) -> None:
    if _loaded.get(name) == origin:
        return
    if name in _loaded:
        raise ValueError(f"plugin must have a name of its own, got {name!r} from {origin} and from {_loaded[name]}.")
    load()
    _loaded[name] = origin


def _run(path: Path) -> None:
    """Run a file as a module that others can import: pickles and metrics name it."""
    name = path.stem
    found = importlib.util.find_spec(name)
    if found is not None and (found.origin is None or Path(found.origin).resolve() != path):
        raise ValueError(f"plugin must have a name of its own, got {str(path)!r}, but there is a module {name!r}.")
    module = run_file(path, "plugin")
    sys.modules[name] = module


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        raise ValueError(f"plugin must be a Python file or a module, got {name!r}: {reason_of(error)}.") from error


def reason_of(error: BaseException) -> str:
    """What went wrong in a file, in one line."""
    where = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
    text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{type(error).__name__}{where}: {text}"
