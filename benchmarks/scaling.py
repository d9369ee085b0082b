"""How the cost of a lookup grows: with the batch, the vocabulary, the columns, the rows and the threads.

    python -m benchmarks.scaling [--quick]

One CCE table, forward and backward. One quantity varies at a time; the others stay at 16,384 uniform ids of 1,000,000,
4 columns, 4,000 rows, 1 thread.
"""

import argparse
from typing import Any

import torch

import cce
from benchmarks.side_by_side import keep, medians
from benchmarks.traffic import draw_ids
from cce.text import format_table

DIM = 16
USUAL = {"batch": 16_384, "vocabulary": 1_000_000, "columns": 4, "rows": 4000, "threads": 1}
VARIED: dict[str, tuple[int, ...]] = {
    "batch": (128, 512, 2048, 8192, 32_768, 131_072),
    "vocabulary": (10_000, 100_000, 1_000_000, 10_000_000, 50_000_000),
    "columns": (1, 2, 4, 8, 16),
    "rows": (100, 1000, 4000, 16_000, 64_000),
    "threads": (1, 2),
}


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    threads = torch.get_num_threads()
    figures = []
    try:
        for quantity, values in VARIED.items():
            for value in values[:2] if options.quick else values:
                usual = USUAL | ({"vocabulary": 10_000} if options.quick else {})
                figures.append(
                    {"quantity": quantity, "value": value, **_measure(usual | {quantity: value}, options.quick)}
                )
    finally:
        torch.set_num_threads(threads)
    rows = [
        (f["quantity"], f"{f['value']:,}", f"{f['forward_us']:.0f}", f"{f['total_us']:.0f}", f"{f['ns_per_id']:.1f}")
        for f in figures
    ]
    print(format_table(("quantity", "value", "forward us", "both us", "ns per id"), rows))
    if not options.quick:
        print(keep("scaling", figures))
    return figures


def _measure(case: dict[str, int], quick: bool) -> dict[str, float]:  # noqa: FBT001
    torch.set_num_threads(case["threads"])
    generator = torch.Generator().manual_seed(0)
    table = cce.embeddings.ClusteredEmbedding(
        case["vocabulary"], DIM, num_rows=case["rows"], num_columns=case["columns"], generator=generator
    )
    ids = draw_ids("uniform", case["vocabulary"], case["batch"], generator)
    grad = torch.randn(case["batch"], DIM)

    def forward() -> None:
        with torch.no_grad():
            table(ids)

    def both() -> None:
        table.zero_grad(set_to_none=True)
        table(ids).backward(grad)

    seconds = medians({"forward": forward, "both": both}, rounds=3 if quick else 15, burst=5)
    return {
        "forward_us": 1e6 * seconds["forward"],
        "total_us": 1e6 * seconds["both"],
        "ns_per_id": 1e9 * seconds["both"] / case["batch"],
    }


if __name__ == "__main__":
    main()
