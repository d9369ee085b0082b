"""`python -m benchmarks [--quick]`: all of them, one after the other."""

import sys

from benchmarks import (
    cluster_event,
    collection,
    delta,
    first_lookup,
    hash_ids,
    kmeans,
    loader,
    lookup,
    memory,
    open_ids,
    prepare,
    recovery,
    refit,
    scaling,
    serving,
    training,
)


def main(argv: list[str]) -> None:
    for benchmark, kept in (
        (kmeans, ["--json", "results/bench/kmeans.json"]),
        (cluster_event, []),
        (recovery, []),
        (refit, []),
        (lookup, []),
        (first_lookup, ["--json", "results/bench/first_lookup.json"]),
        (collection, []),
        (memory, []),
        (scaling, []),
        (prepare, []),
        (hash_ids, []),
        (open_ids, []),
        (delta, []),
        (loader, []),
        (serving, []),
        (training, []),
    ):
        print(f"\n== {benchmark.__name__.rpartition('.')[2]}", flush=True)
        benchmark.main(argv + ([] if "--quick" in argv else kept))


if __name__ == "__main__":
    main(sys.argv[1:])
