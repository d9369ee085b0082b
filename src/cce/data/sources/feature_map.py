"""`feature_map.json`, which FuxiCTR leaves beside rows that it has encoded: what their columns are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cce.data.prepare.columns import Columns, Reading

if TYPE_CHECKING:
    from pathlib import Path

FEATURE_MAP = "feature_map.json"
PADDING = "0"  # the id that no value has


def read_feature_map(path: Path) -> tuple[Columns, Reading]:
    """The columns of encoded rows. Their ids are values here, and numbered again by count; padding is missing."""
    try:
        values = json.loads(path.read_bytes())
        features = {name: spec for each in values["features"] for name, spec in each.items()}
        label = values["labels"][0]
        kinds = {name: spec["type"] for name, spec in features.items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{path} must be a feature map of FuxiCTR, and it is not: {error!r}.") from error
    columns = Columns(
        label=label,
        categorical=_of_kind(kinds, "categorical"),
        dense=_of_kind(kinds, "numeric"),
        multi_hot=_of_kind(kinds, "sequence"),
        shared=_shared(features, kinds),
    )
    return columns, Reading(missing=("", PADDING), transforms=tuple((name, "identity") for name in columns.dense))


def _of_kind(kinds: dict[str, str], kind: str) -> tuple[str, ...]:
    return tuple(name for name, found in kinds.items() if found == kind)


def _shared(features: dict[str, Any], kinds: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Sequences with the ids of another column; columns of other kinds, such as metadata, are not read."""
    pairs = ((name, spec.get("share_embedding")) for name, spec in features.items())
    used = ("categorical", "sequence")
    return tuple((name, other) for name, other in pairs if other and {kinds[name], kinds.get(other)} <= set(used))
