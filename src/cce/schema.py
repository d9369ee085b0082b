"""Types that all packages share: a feature, the schema of a data set, and a batch of its rows.

A *baked* data set holds, in place of the ids of some features, the rows of the codebook that the ids point to ("the
index pointers can replace the original IDs": the CCE paper). `Pointers` says how they are packed into integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from cce.checks import check_flag, check_range, check_type, shown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MOST_BITS = 62  # of a word of pointers, which is stored and checked as ids are
STORED_BYTES = {8: 1, 16: 2, 32: 4, 63: 8}  # of an id, by its bits


@dataclass(frozen=True)
class Pointers:
    """What a feature holds in place of ids: `num_terms` rows for each of `num_columns` columns, each below `num_rows`.

    The rows of some columns lie in one integer, a *word*, `bits` each and the first in its lowest bits: all terms of
    the first column, then of the second, and so on. checksum: of the words of all ids.
    """

    num_columns: int
    num_terms: int
    num_rows: int
    checksum: str

    def __post_init__(self) -> None:
        for name in ("num_columns", "num_terms", "num_rows"):
            check_range(f"{name} of pointers", getattr(self, name), 1, 2**31 if name == "num_rows" else 2**16)
        check_type("checksum of pointers", self.checksum, str, "a str")
        if self.bits * self.num_terms > MOST_BITS:
            got = f"{self.num_terms} of {self.bits} bits each"
            raise ValueError(f"pointers of a column must fit into {MOST_BITS} bits together, got {got}.")

    @property
    def bits(self) -> int:
        """Bits of a row."""
        return (self.num_rows - 1).bit_length()

    @property
    def columns_of_words(self) -> tuple[int, ...]:
        """The columns that each word holds: those that take the fewest bytes, and then the fewest words."""
        bits = self.bits * self.num_terms
        sizes = {n: _stored_bytes(bits * n) for n in range(1, MOST_BITS + 1) if bits * n <= MOST_BITS}
        best: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]  # of so many columns: bytes, words, columns
        for total in range(1, self.num_columns + 1):
            before = {n: best[total - n] for n in sizes if n <= total}  # of columns that come before the last word
            best.append(min((b[0] + sizes[n], b[1] + 1, (*b[2], n)) for n, b in before.items()))
        return best[-1][2]


def _stored_bytes(bits: int) -> int:
    return next(nbytes for most, nbytes in STORED_BYTES.items() if bits <= most)


@dataclass(frozen=True)
class Feature:
    """A categorical column: its ids lie in `[0, num_embeddings)`, and 0 is "unseen or missing"."""

    name: str
    num_embeddings: int
    multi_hot: bool = False  # a row has any number of ids rather than one
    pointers: Pointers | None = None  # what rows hold in place of ids, if they were baked

    def __post_init__(self) -> None:
        check_type("name of a feature", self.name, str, "a str")
        check_range(f"num_embeddings of feature {self.name!r}", self.num_embeddings, 1, 2**63)
        check_flag(f"multi_hot of feature {self.name!r}", self.multi_hot)
        check_type(f"pointers of feature {self.name!r}", self.pointers, (Pointers, type(None)), "Pointers or None")

    @property
    def id_columns(self) -> tuple[Feature, ...]:
        """The columns of a batch's ids that are its own: itself, or the words of its pointers."""
        if self.pointers is None:
            return (self,)
        bits, counts = self.pointers.bits * self.pointers.num_terms, self.pointers.columns_of_words
        return tuple(Feature(f"{self.name} {word}", 2 ** (bits * n), self.multi_hot) for word, n in enumerate(counts))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Feature:
        """The feature that `to_dict` wrote."""
        check_type("feature", values, Mapping, "a table of names and values")
        known = {field.name for field in fields(cls)}
        if not {"name", "num_embeddings"} <= set(values) <= known:
            raise ValueError(f"feature must have {', '.join(sorted(known - {'pointers'}))}, got {shown(dict(values))}.")
        return cls(**{**values, "pointers": _pointers(values.get("pointers"))})


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
    def is_baked(self) -> bool:
        """Whether rows hold pointers in place of the ids of some feature."""
        return any(feature.pointers is not None for feature in self.features)

    @property
    def id_columns(self) -> tuple[Feature, ...]:
        """The columns of a batch's ids: one for each feature, or one for each word of its pointers."""
        return tuple(column for feature in self.features for column in feature.id_columns)

    @property
    def with_ids(self) -> Schema:
        """The schema of the data set that was baked."""
        return replace(self, features=tuple(replace(feature, pointers=None) for feature in self.features))

    @property
    def vocabulary_sizes(self) -> dict[str, int]:
        """Vocabulary sizes by feature name."""
        return {feature.name: feature.num_embeddings for feature in self.features}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "features": [feature.to_dict() for feature in self.features],
            "dense": list(self.dense),
            "has_weights": self.has_weights,
        }

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


def _pointers(values: Any) -> Pointers | None:
    if values is None:
        return None
    check_type("pointers", values, Mapping, "a table of names and values")
    names = {field.name for field in fields(Pointers)}
    if set(values) != names:
        raise ValueError(f"pointers must have {', '.join(sorted(names))}, got {shown(dict(values))}.")
    return Pointers(**values)


@dataclass(frozen=True)
class Batch:
    """Some rows of a data set. The columns of its ids, F in number, are the features, unless it is baked: `id_columns`.

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
        return replace(self, **{n: t.to(device, non_blocking=non_blocking) for n, t in self._tensors().items()})

    def pin_memory(self) -> Batch:
        """The same batch in memory that a GPU can fetch by itself."""
        return replace(self, **{name: tensor.pin_memory() for name, tensor in self._tensors().items()})

    def _tensors(self) -> dict[str, Tensor]:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in values if value is not None}
