"""Values as they are typed in a shell."""

from __future__ import annotations

import argparse
from pathlib import Path

from cce.text import parse_bytes


def typed_path(word: str) -> Path:
    """A path, which is not empty: Python takes an empty one for the present folder."""
    if not word:
        raise argparse.ArgumentTypeError("must be a path, got ''")
    return Path(word)


def typed_bytes(word: str) -> int:
    """Bytes, such as 50000000 or 50MB."""
    try:
        return parse_bytes(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
