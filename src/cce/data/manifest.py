"""The manifest of a data set: what is in its folder, where it came from, and the checksums of both."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
MANIFEST = "manifest.json"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a data set's folder."""
    if not (folder / MANIFEST).exists():
        raise FileNotFoundError(f"{folder} must be a data set made by `cce prepare`, got no {MANIFEST} there.")
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if manifest.get("format") != FORMAT:
        raise ValueError(f"format of {folder / MANIFEST} must be {FORMAT}, got {manifest.get('format')!r}.")
    return manifest


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
