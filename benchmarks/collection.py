"""26 tables of Criteo's sizes: forward, backward and a step of SGD, compressed and full.

    python -m benchmarks.collection [--quick]

33.8 million ids. The full tables are `nn.EmbeddingBag(sparse=True)`, one call for each; ours are compressed to at most
128,000 numbers each and looked up in one call. torchrec's `EmbeddingBagCollection` takes part where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import cce
from benchmarks.side_by_side import keep, medians
from benchmarks.traffic import CRITEO_SIZES, draw_batch
from cce.kernels import gather_sum
from cce.text import format_table

if TYPE_CHECKING:
    from collections.abc import Callable

DIM, CAP = 16, 128_000
PEER = "26 nn.EmbeddingBag(sparse=True), full"


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    sizes = tuple(min(size, 10_000) for size in CRITEO_SIZES) if options.quick else CRITEO_SIZES
    rounds, cap = (3, 8000) if options.quick else (15, CAP)
    candidates = _candidates(sizes, cap)
    figures = []
    for batch in (128, 2048) if options.quick else (128, 2048, 16_384):
        for traffic in ("uniform", "zipf"):
            ids = draw_batch(traffic, sizes, batch, torch.Generator().manual_seed(0))
            grad = torch.randn(batch, len(sizes), DIM)
            seconds = medians({name: make(ids, grad) for name, make in candidates.items()}, rounds=rounds, burst=3)
            figures += [
                {
                    "tables": name,
                    "batch": batch,
                    "traffic": traffic,
                    "ms": 1000 * value,
                    "times_full": value / seconds[PEER],
                }
                for name, value in seconds.items()
            ]
    headers = ("tables", "batch", "ids", "ms", "x full")
    rows = [(f["tables"], f"{f['batch']:,}", f["traffic"], f"{f['ms']:.2f}", f"{f['times_full']:.2f}") for f in figures]
    print(f"{len(sizes)} features, {sum(sizes):,} ids, dim {DIM}, cap {cap:,}: forward + backward + SGD step")
    print(format_table(headers, rows))
    if not options.quick:
        print(keep("collection", figures))
    return figures


def _candidates(sizes: tuple[int, ...], cap: int) -> dict[str, Callable[[Tensor, Tensor], Callable[[], None]]]:
    names = {f"C{index}": size for index, size in enumerate(sizes)}
    bags = nn.ModuleList(nn.EmbeddingBag(size, DIM, sparse=True, mode="sum") for size in sizes)
    ours = cce.EmbeddingCollection(names, DIM, method="cce-paper", cap=cap, seed=0)
    ours_sparse = cce.EmbeddingCollection(names, DIM, method="cce-paper", cap=cap, seed=0, sparse=True)
    for mine, other in zip(ours_sparse.tables.values(), ours.tables.values(), strict=True):
        if isinstance(mine, cce.embeddings.ClusteredEmbedding):  # one copy of the pointers will do
            mine.assignments.pointers = other.assignments.pointers  # type: ignore[union-attr]
    candidates: dict[str, Any] = {
        PEER: (bags, lambda ids: torch.stack([bag(ids[:, f, None]) for f, bag in enumerate(bags)], dim=1)),
        "cce, one call, sparse, torch SGD": (ours_sparse, ours_sparse),
        "cce, one call, dense, torch SGD": (ours, ours),
        "cce, 26 calls, sparse, torch SGD": (
            ours_sparse,
            lambda ids: torch.stack([table(ids[:, f]) for f, table in enumerate(ours_sparse.tables.values())], dim=1),
        ),
        "cce, 26 calls in plain torch, dense": (ours, lambda ids: _plain(ours, ids)),
    }
    if importlib.util.find_spec("torchrec") is not None:
        candidates["torchrec EmbeddingBagCollection, full"] = _torchrec(sizes)
    return {name: _maker(*parts) for name, parts in candidates.items()}


def _maker(tables: nn.Module, look_up: Any) -> Callable[[Tensor, Tensor], Callable[[], None]]:
    optimizer = torch.optim.SGD(tables.parameters(), lr=0.01)

    def make(ids: Tensor, grad: Tensor) -> Callable[[], None]:
        def run() -> None:
            tables.zero_grad(set_to_none=True)
            look_up(ids).backward(grad)
            optimizer.step()

        return run

    return make


def _plain(collection: cce.EmbeddingCollection, ids: Tensor) -> Tensor:
    tables = collection.tables.values()
    vectors = [gather_sum(table.codebook, *table.lookup(ids[:, f])) for f, table in enumerate(tables)]  # type: ignore[union-attr]
    return torch.stack(vectors, dim=1)


def _torchrec(sizes: tuple[int, ...]) -> tuple[nn.Module, Any]:
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor

    keys = [f"C{index}" for index in range(len(sizes))]
    configs = [
        EmbeddingBagConfig(name=key, embedding_dim=DIM, num_embeddings=size, feature_names=[key])
        for key, size in zip(keys, sizes, strict=True)
    ]
    tables = EmbeddingBagCollection(tables=configs)
    for bag in tables.embedding_bags.values():
        bag.sparse = True

    def look_up(ids: Tensor) -> Tensor:
        values = ids.t().reshape(-1)
        lengths = torch.ones(len(values), dtype=torch.int32)
        pooled = tables(KeyedJaggedTensor(keys=keys, values=values, lengths=lengths))
        return pooled.values().view(len(ids), len(keys), DIM)

    return tables, look_up


if __name__ == "__main__":
    main()
