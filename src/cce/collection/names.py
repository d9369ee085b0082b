"""Tables by the names of features, whatever these are.

`nn.ModuleDict` rejects the names of its attributes (`type`, `items`, `training`), the empty name and dots, which
separate modules in the keys of a state dict. Such names are escaped as in URLs; other names are left unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

from torch import nn

ESCAPE = "%"  # the first character of an escaped name


@lru_cache(maxsize=1 << 16)
def module_key(name: str) -> str:
    """The name of a submodule for a feature: `user` for "user", `%type` for "type", `%a%2Eb` for "a.b"."""
    is_ordinary = name and "." not in name and not name.startswith(ESCAPE) and not hasattr(nn.ModuleDict(), name)
    return name if is_ordinary else ESCAPE + name.replace(ESCAPE, "%25").replace(".", "%2E")


def feature_name(key: str) -> str:
    """The name of the feature whose `module_key` this is."""
    return unquote(key.removeprefix(ESCAPE)) if key.startswith(ESCAPE) else key


def readable_path(path: str) -> str:
    """The path of a module as people read it: with the names of features."""
    return ".".join(feature_name(part) for part in path.split("."))


class TableDict(nn.ModuleDict):
    """An `nn.ModuleDict` with any strings for keys."""

    def __getitem__(self, name: str) -> nn.Module:
        return super().__getitem__(module_key(name))

    def __setitem__(self, name: str, table: nn.Module) -> None:
        super().__setitem__(module_key(name), table)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(module_key(name))

    def __contains__(self, name: str) -> bool:
        return super().__contains__(module_key(name))

    def __iter__(self) -> Iterator[str]:
        return map(feature_name, super().__iter__())

    def keys(self) -> list[str]:  # type: ignore[override]
        """Names of the features, in order."""
        return list(self)

    def items(self) -> list[tuple[str, nn.Module]]:  # type: ignore[override]
        """Names and tables, in order."""
        return list(zip(self, self.values(), strict=True))
