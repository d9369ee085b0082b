"""End-to-end training: rows a second of full tables, the hashing trick, CCE and codes, and where the time goes.

    python -m benchmarks.training [--quick]

The model is the paper's DLRM with 26 features and 13 dense features, plain SGD, on a synthetic click log. 8-bit codes
of all ids of all features, which have an optimizer of their own, are beside full tables under Adam. Parts are timed one
after another within each step: data (reading batches), tables (forward and backward of the lookups), networks
(everything else of forward and backward), optimizer. Full tables under SGD have sparse gradients.
"""

import argparse
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from benchmarks.side_by_side import keep
from cce.data import PreparedData, SyntheticConfig, prepare_synthetic
from cce.text import format_table
from cce.training import TrainConfig, resolve
from cce.training.model import make_model
from cce.training.session import create_optimizer

RUNS: dict[str, dict[str, Any]] = {
    "full": {"method": "full", "method_options": {"sparse": True}},
    "hash": {"method": "hash", "cap": 32_000},
    "cce": {"method": "cce", "cap": 32_000},
    "full, adam": {"method": "full", "optimizer": "adam"},
    "quantized": {"method": "quantized", "optimizer": "adam"},
}
PARTS = ("data", "tables", "networks", "optimizer")
WARMUP = 3  # steps: loops are compiled, memory is allocated


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    sizes, seconds = ((128, 2_048), 0.3) if options.quick else ((128, 2_048, 16_384), 8.0)
    largest = 20_000 if options.quick else 1_000_000
    vocabularies = (largest, largest // 2, *[max(10, largest // 4**index) for index in range(24)])
    with tempfile.TemporaryDirectory() as folder:
        rows = 20_000 if options.quick else 200_000
        config = SyntheticConfig(num_rows=rows, vocabulary_sizes=vocabularies, num_dense=13)
        prepare_synthetic(Path(folder) / "data", config, progress=False)
        data = PreparedData.open(Path(folder) / "data")
        figures = [_measure(data, name, size, seconds) for size in sizes for name in RUNS]
    print(f"DLRM, 26 features, {sum(vocabularies):,} ids, dim 16, {torch.get_num_threads()} threads")
    print(format_table(("batch", "method", "rows/s", *PARTS), [_row(figure) for figure in figures], num_left=2))
    if not options.quick:
        print(keep("training", figures))
    return figures


def _measure(data: PreparedData, name: str, batch_size: int, seconds: float) -> dict[str, Any]:
    values = 16 * sum(data.schema.vocabulary_sizes.values())
    budget = {"nbytes": values + values // 50} if name == "quantized" else {}  # a byte a value, and the scales
    given = TrainConfig(data=str(data.path), batch_size=batch_size, lr=0.01, **RUNS[name], **budget)
    config = resolve(given, data)
    model = make_model(vars(config), data.schema)
    optimizer = create_optimizer(config.optimizer, model, lr=config.lr)
    loader = data.loader("train", batch_size=batch_size)
    parts, rows, step = dict.fromkeys(PARTS, 0.0), 0, 0
    while sum(parts.values()) < seconds:
        began = time.perf_counter()
        for batch in loader:
            loaded = time.perf_counter()
            spent = _step(model, optimizer, batch) | {"data": loaded - began}
            step += 1
            if step > WARMUP:
                rows += len(batch)
                parts = {part: parts[part] + spent[part] for part in PARTS}
            if sum(parts.values()) >= seconds:
                break
            began = time.perf_counter()
    total = sum(parts.values())
    shares = {part: value / total for part, value in parts.items()}
    return {"method": name, "batch_size": batch_size, "rows_per_second": rows / total, "shares": shares}


def _step(model: Any, optimizer: torch.optim.Optimizer, batch: Any) -> dict[str, float]:
    """One step by hand, cut where vectors leave the tables and where their gradients come back."""
    times = [time.perf_counter()]
    optimizer.zero_grad()
    times.append(time.perf_counter())
    vectors = model.tables(batch.ids, batch.offsets)
    leaf = vectors.detach().requires_grad_()
    times.append(time.perf_counter())
    tables, model.tables = model.tables, _Given(leaf)
    functional.binary_cross_entropy_with_logits(model(batch), batch.labels).backward()
    model.tables = tables
    times.append(time.perf_counter())
    vectors.backward(leaf.grad)
    times.append(time.perf_counter())
    optimizer.step()
    times.append(time.perf_counter())
    zero, forward, networks, backward, update = (after - before for before, after in pairwise(times))
    return {"tables": forward + backward, "networks": networks, "optimizer": zero + update}


class _Given(torch.nn.Module):
    """Tables whose vectors were looked up already."""

    def __init__(self, vectors: torch.Tensor) -> None:
        super().__init__()
        self.vectors = vectors

    def forward(self, *_: object) -> torch.Tensor:
        return self.vectors


def _row(figure: dict[str, Any]) -> tuple[str, ...]:
    shares = (f"{100 * figure['shares'][part]:.0f} %" for part in PARTS)
    return (f"{figure['batch_size']:,}", figure["method"], f"{figure['rows_per_second']:,.0f}", *shares)


if __name__ == "__main__":
    main()
