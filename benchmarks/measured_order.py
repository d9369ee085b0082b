"""`python -m benchmarks.measured_order`: which method was better at how many bytes, from stored records.

Writes the table that `cce plan` shows (src/cce/experiments/measured_order.json), and nothing else: run it after records
in results/real/tuned-* have changed. A test fails until then.
"""

from __future__ import annotations

from pathlib import Path

from cce.experiments.measured_order import FILE, derive_order
from cce.files import write_atomic
from cce.records import read_records

ROOT = Path(__file__).parents[1]


def derived() -> str:
    """The text of the file, from the records of all sets."""
    found = sorted((ROOT / "results" / "real").glob("tuned-*/records.jsonl"))
    sets = {path.parent.name.removeprefix("tuned-"): read_records(path) for path in found}
    return derive_order(sets).to_json()


def main() -> None:
    path = ROOT / "src" / "cce" / "experiments" / FILE
    write_atomic(path, derived())
    print(path)


if __name__ == "__main__":
    main()
