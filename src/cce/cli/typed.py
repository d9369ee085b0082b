"""Values as they are typed in a shell."""

from __future__ import annotations

import argparse

from cce.text import parse_bytes


def typed_bytes(word: str) -> int:
    """Bytes, such as 50000000 or 50MB."""
    try:
        return parse_bytes(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
