"""Format tables and numbers as text."""

from collections.abc import Iterable, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def format_table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, num_left: int = 1) -> str:
    """Columns under headers, the first `num_left` of them set left and the rest right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(_line(row, widths, num_left) for row in [list(headers), rule, *cells])


def format_bytes(count: int) -> str:
    """`1536` as `1.5 kB`, in powers of ten."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if round(value, 1) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def parse_bytes(text: str) -> int:
    """`50MB` as 50,000,000."""
    number = text.rstrip("BKMGTbkmgt ")
    unit = text[len(number) :].strip().upper() or "B"
    unit = unit if unit.endswith("B") else f"{unit}B"
    try:
        return int(float(number) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"bytes must be a number with a unit such as 50MB, got {text!r}.") from None


def format_seconds(seconds: float) -> str:
    """`75` as `75 s`, and more than two minutes as minutes."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def format_ratio(ratio: float) -> str:
    """`123.4` as `123×`."""
    return f"{ratio:,.1f}×" if round(ratio, 1) < 100 else f"{ratio:,.0f}×"


def _line(cells: Sequence[str], widths: Sequence[int], num_left: int) -> str:
    padded = [
        cell.ljust(width) if index < num_left else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def install_hint(extra: str) -> str:
    """How to install an optional extra: from the checkout that this package runs from, or from the package index."""
    where = str(CHECKOUT) if (CHECKOUT / "pyproject.toml").is_file() else "clustered-embeddings"
    return f"pip install {'--editable ' if where == str(CHECKOUT) else ''}'{where}[{extra}]'"
