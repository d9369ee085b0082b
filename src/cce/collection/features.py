"""Features of a collection: tables by their names, and bags of their ids.

`nn.ModuleDict` rejects the names of its attributes (`type`, `items`, `training`), the empty name and dots, which
separate modules in the keys of a state dict. Such names are escaped as in URLs; other names are left unchanged.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from urllib.parse import unquote

import torch
from torch import Tensor, nn

from cce.embeddings import check_offsets

Jagged = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]  # values, offsets, and weights
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


def join_bags(columns: Sequence[Tensor | Jagged]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Features that come one by one, as ids `(batch)` or as bags, concatenated: ids, offsets and weights of all."""
    bags: list[Jagged] = [
        (column, torch.arange(len(column) + 1, device=column.device)) if isinstance(column, Tensor) else column
        for column in columns
    ]
    sizes = sorted({len(offsets) - 1 for _, offsets, *_ in bags})
    if len(sizes) > 1:
        raise ValueError(f"offsets of every feature must have batch + 1 values, got batches of {sizes}.")
    ids = torch.cat([values for values, *_ in bags])
    starts = [0, *accumulate(len(values) for values, *_ in bags)]
    for values, offsets, *_ in bags:
        check_offsets(offsets, len(values), whole=True)
    cuts = [own[:-1].long() + start for (_, own, *_), start in zip(bags, starts, strict=False)]
    boundaries = torch.cat([*cuts, ids.new_tensor(starts[-1:], dtype=torch.int64)])
    if all(len(bag) == 2 for bag in bags):
        return ids, boundaries, None
    weights = [bag[2] if len(bag) == 3 else torch.ones(len(bag[0]), device=ids.device) for bag in bags]
    return ids, boundaries, torch.cat(weights)


def check_bags(ids: Tensor, offsets: Tensor, weights: Tensor | None, num_features: int) -> int:
    """The size of the batch."""
    batch, rest = divmod(len(offsets) - 1, num_features)
    if offsets.dim() != 1 or offsets.dtype not in (torch.int32, torch.int64) or rest or batch < 0:
        raise ValueError(
            f"offsets must be int32 or int64 with features · batch + 1 values for {num_features} features, "
            f"got {offsets.dtype} of shape {tuple(offsets.shape)}."
        )
    if ids.dim() != 1:
        raise ValueError(f"ids must be 1-D with offsets, got shape {tuple(ids.shape)}.")
    if weights is not None and weights.shape != ids.shape:
        raise ValueError(f"per_sample_weights must have the shape of ids, got {tuple(weights.shape)}.")
    check_offsets(offsets, len(ids), whole=True)
    return batch
