"""Types that all packages share: a feature, the schema of a data set, and a batch of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from cce.checks import check_flag, check_range, check_type, shown

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Feature:
    """A categorical column: its ids lie in `[0, num_embeddings)`, and 0 is "unseen"; or any int64, without a bound."""

    name: str
    num_embeddings: int | None
    multi_hot: bool = False  # a row has any number of ids rather than one

    def __post_init__(self) -> None:
        check_type("name of a feature", self.name, str, "a str")
        if self.num_embeddings is not None:
            check_range(f"num_embeddings of feature {self.name!r}", self.num_embeddings, 1, 2**63)
        check_flag(f"multi_hot of feature {self.name!r}", self.multi_hot)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Feature:
        """The feature of plain values."""
        check_type("feature", values, Mapping, "a table of names and values")
        known = {field.name for field in fields(cls)}
        if not {"name", "num_embeddings"} <= set(values) <= known:
            raise ValueError(f"feature must have {', '.join(sorted(known))}, got {shown(dict(values))}.")
        return cls(**values)


@dataclass(frozen=True)
class Schema:
    """The columns of a data set, in the order of a batch's columns."""

    features: tuple[Feature, ...]
    dense: tuple[str, ...] = ()
    has_weights: bool = False

    def __post_init__(self) -> None:
        for name, columns, kind in (("features", self.features, Feature), ("dense", self.dense, str)):
            wanted = f"a tuple of {kind.__name__}"
            check_type(name, columns, (tuple, list), wanted)
            for column in columns:
                check_type(f"every one of {name}", column, kind, f"a {kind.__name__}")
        check_flag("has_weights", self.has_weights)
        names = [*(feature.name for feature in self.features), *self.dense]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"columns must have distinct names, got {twice[0]!r} twice.")

    @property
    def is_multi_hot(self) -> bool:
        """Whether any feature has bags of ids: then the ids of a batch are flat, with offsets."""
        return any(feature.multi_hot for feature in self.features)

    @property
    def vocabulary_sizes(self) -> dict[str, Any]:
        """Vocabulary sizes by feature name; None for any int64."""
        return {feature.name: feature.num_embeddings for feature in self.features}

    def to_dict(self) -> dict[str, Any]:
        features = [asdict(feature) for feature in self.features]
        return {"features": features, "dense": list(self.dense), "has_weights": self.has_weights}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Schema:
        """The schema that `to_dict` wrote."""
        check_type("schema", values, Mapping, "a table of names and values")
        missing = [name for name in ("features", "dense", "has_weights") if name not in values]
        if missing:
            raise ValueError(f"schema must have {missing[0]!r}, got {shown(list(values))}.")
        for name in ("features", "dense"):
            check_type(name, values[name], (list, tuple), "a list")
        features = tuple(Feature.from_dict(feature) for feature in values["features"])
        return cls(features, tuple(values["dense"]), values["has_weights"])


@dataclass(frozen=True)
class Batch:
    """Some rows of a data set with F features.

    If every feature has one id a row, `ids` is `(B, F)` and `offsets` is None. If any feature is multi-hot, `ids` is
    flat and `offsets` `(F · B + 1)` cuts it into bags: all bags of the first feature, then all of the second, …:
    bag `b` of feature `f` is `ids[offsets[f · B + b] : offsets[f · B + b + 1]]`.
    """

    dense: Tensor  # (B, num_dense), float32
    ids: Tensor  # (B, F) or flat, int64
    labels: Tensor  # (B), float32
    offsets: Tensor | None = None  # (F · B + 1), int64
    weights: Tensor | None = None  # (B), float32

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same batch on a device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{n: t.to(device, non_blocking=non_blocking) for n, t in values.items() if t is not None})
