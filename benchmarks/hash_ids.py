"""Hashing strings to ids: millions a minute on one core, of a list, a NumPy array and an Arrow array.

python -m benchmarks.hash_ids [--quick]
"""

import sys
import time
from statistics import median

import numpy as np
import pyarrow as pa

import cce
from benchmarks.side_by_side import keep
from cce.text import format_table


def main(argv: list[str]) -> None:
    count, rounds = (100_000, 3) if "--quick" in argv else (1_000_000, 9)
    words = [f"user-{number * 7919 % 10**7}" for number in range(count)]
    figures = {}
    for name, values in (("list", words), ("numpy", np.array(words)), ("arrow", pa.array(words))):
        seconds = []
        for _ in range(rounds):
            started = time.process_time()
            cce.hashing.hash_ids(values)
            seconds.append(time.process_time() - started)
        figures[name] = count / median(seconds) * 60 / 1e6
    print(
        format_table(("strings of 6 to 12 bytes", "million a minute"), [(n, f"{f:,.0f}") for n, f in figures.items()])
    )
    if "--quick" not in argv:
        keep("hash_ids", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
