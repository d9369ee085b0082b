"""The recipes that come with the package, by name: in a wheel beside the code, in a checkout beside `src`."""

from __future__ import annotations

import difflib
from pathlib import Path

HOMES = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes")


def list_recipes() -> dict[str, Path]:
    """Names, such as `quick` or `studies/columns`, and their files."""
    home = next((home for home in HOMES if home.is_dir()), None)
    files = sorted(home.rglob("*.toml")) if home is not None else []
    return {path.relative_to(home).with_suffix("").as_posix(): path for path in files if home is not None}


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe: a path, or a name of `list_recipes`."""
    path, shipped = Path(name), list_recipes()
    if path.is_file() or str(name) not in shipped:
        _check_there(path, shipped)
        return path
    return shipped[str(name)]


def _check_there(path: Path, shipped: dict[str, Path]) -> None:
    if not path.is_file():
        near = difflib.get_close_matches(path.name.removesuffix(".toml"), shipped, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}?" if near else "`cce list recipes` shows those that come with the package."
        raise FileNotFoundError(f"recipe must name a file that is there, or one of ours, got {str(path)!r}: {hint}")
