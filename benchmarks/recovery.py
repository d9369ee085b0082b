"""Learning on after a clustering: how far the loss jumps, and how fast it comes back.

    python -m benchmarks.recovery [--quick]

A small recommender on planted clusters is trained and clustered once in the middle; the test loss is taken before the
event, right after it and on the way back, for both starts of the helper and all policies of optimizer repair.
"""

import argparse
from itertools import cycle, islice
from typing import Any

import torch
from torch import nn

import cce
import cce_lab.methods  # noqa: F401  # registers the second method
from benchmarks.side_by_side import keep
from cce.data import Sample, SyntheticClicks
from cce.reclustering.repair import POLICIES
from cce.text import format_table

DIM, BATCH, RATE = 16, 1024, 0.01
MOMENTS = (0, 10, 30, 100, 300)  # batches after the event


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    num_rows, seeds = (20_000, 1) if options.quick else (400_000, 3)
    figures = [
        _average([_run(start, policy, num_rows, seed) for seed in range(seeds)])
        for start in ("cce-paper", "cce-residual-helpers")
        for policy in POLICIES
    ]
    headers = ("helper start", "optimizer", "before", *(f"+{moment}" for moment in MOMENTS))
    print(f"test BCE before a clustering and so many batches after it, mean of {seeds} seeds")
    print(format_table(headers, [_row(figure) for figure in figures], num_left=2))
    if not options.quick:
        print(keep("recovery", figures))
    return figures


def _run(method: str, policy: str, num_rows: int, seed: int) -> dict[str, Any]:
    g = torch.Generator().manual_seed(seed)
    clicks = SyntheticClicks((20_000, 5_000), num_clusters=32, generator=g)
    train, test = clicks.sample(num_rows, generator=g), clicks.sample(num_rows // 8, generator=g)
    tables = nn.ModuleList(
        cce.create_embedding(method, size, DIM, num_params=8_000, generator=g) for size in (20_000, 5_000)
    )
    optimizer = torch.optim.Adam(tables.parameters(), lr=RATE)
    batches = torch.split(torch.randperm(num_rows, generator=g), BATCH)
    for rows in batches:
        _train_step(tables, optimizer, train, rows)
    curve = {"before": _score(tables, test)}
    cce.reclustering.ClusterSchedule(tables, optimizer, every=1, policy=policy, seed=seed).cluster()
    for index, rows in enumerate(islice(cycle(batches), max(MOMENTS) + 1)):
        if index in MOMENTS:
            curve[str(index)] = _score(tables, test)
        _train_step(tables, optimizer, train, rows)
    return {"method": method, "policy": policy, "curve": curve}


def _logits(tables: nn.ModuleList, ids: torch.Tensor) -> torch.Tensor:
    return (tables[0](ids[:, 0]) * tables[1](ids[:, 1])).sum(-1)


def _train_step(tables: nn.ModuleList, optimizer: torch.optim.Optimizer, train: Sample, rows: torch.Tensor) -> None:
    logits = _logits(tables, train.ids[rows])
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(logits, train.labels[rows]).backward()
    optimizer.step()


@torch.no_grad()
def _score(tables: nn.ModuleList, test: Sample) -> float:
    logits = _logits(tables, test.ids).double()
    return float(nn.functional.binary_cross_entropy_with_logits(logits, test.labels.double()))


def _average(runs: list[dict[str, Any]]) -> dict[str, Any]:
    curves = [run["curve"] for run in runs]
    mean = {moment: sum(curve[moment] for curve in curves) / len(curves) for moment in curves[0]}
    return runs[0] | {"curve": mean}


def _row(figure: dict[str, Any]) -> tuple[str, ...]:
    return (figure["method"], figure["policy"], *(f"{value:.4f}" for value in figure["curve"].values()))


if __name__ == "__main__":
    main()
