"""All runs of the benchmark that are not in its records yet, each in a process of its own."""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from statistics import mean
from typing import Any

import torch

import cce
from benchmarks.real_sets.data import SETS, Rows, read_rows
from benchmarks.real_sets.models import MODELS
from benchmarks.real_sets.ways import WAYS, Job, cce_default, score
from benchmarks.side_by_side import RESULTS, PeakMemory, allocated, commit, machine

RECORDS = RESULTS / "real_sets.jsonl"
RATES = (1e-3, 3e-3, 6e-3)
ALL_SEEDS = ("full", "cce", "cce-train")  # whose rates are all run with three seeds; rivals' are chosen with the first
AFTERWARDS = ("int8-after", "pq")  # what happens to full tables after their training, at the rate chosen for these
Record = dict[str, Any]


def run(options: argparse.Namespace) -> None:
    """All runs that are not in the records yet."""
    torch.set_num_threads(1)  # and no thread of torch's has run when a process is forked
    _compile()
    for name in options.sets:
        rows = read_rows(options.data, name)
        for model in options.models:
            for way in ["none", *options.ways]:
                run_way(rows, name, model, way, options.seeds)


def _compile() -> None:
    """Load compiled loops, so that no run has their memory and time."""
    ids = torch.arange(4_000).remainder(2_000).unsqueeze(1)
    parts = dict.fromkeys(("train", "validation"), torch.arange(4_000))
    rows = Rows(ids, torch.zeros(4_000, 0), torch.rand(4_000).round(), [2_000], parts)
    cce_default(Job(rows, MODELS["deepfm"](rows.sizes, 0), 1e-3, 1, 0, 0))


def run_way(rows: Rows, name: str, model: str, way: str, seeds: int) -> None:
    """All rates, with three seeds or with the first, and then the best one with the others."""
    try:
        if way == "none":  # nothing is to be chosen
            return _run_once(rows, name, model, way, RATES[0], seed=0)
        for lr in RATES if way not in AFTERWARDS else [chosen(read_records())[name, model, "full"][0]["lr"]]:
            for seed in range(min(seeds, 3) if way in ALL_SEEDS else 1):
                _run_once(rows, name, model, way, lr, seed)
        best = chosen(read_records())[name, model, way][0]["lr"]
        for seed in range(seeds):
            _run_once(rows, name, model, way, best, seed)
    except ValueError as error:  # a method that cannot be as small as `cce`
        print(name, model, way, error, flush=True)


def _run_once(rows: Rows, name: str, model: str, way: str, lr: float, seed: int) -> None:
    records = read_records()
    if any(key(each) == (name, model, way, lr, seed) for each in records):
        return
    ours = [each for each in records if key(each)[:3] == (name, model, "cce")]
    served = round(average(chosen(ours)[name, model, "cce"], "served")) if ours else 0

    def work() -> Record:
        torch.manual_seed(seed)
        started = time.process_time()
        with PeakMemory(allocated) as peak:
            built = MODELS[model](rows.sizes, rows.dense.shape[1])
            found = WAYS[way](Job(rows, built, lr, SETS[name][0], served, seed))
            seconds = time.process_time() - started
        tests = {} if "test" in found else {"test": score(built, rows, "test")}
        return {"cpu_seconds": seconds, "peak": peak.bytes, "served": cce.summary(built).nbytes} | tests | found

    record = {"set": name, "model": model, "way": way, "lr": lr, "seed": seed} | in_process(work)
    record |= {"cpu_seconds": round(record["cpu_seconds"], 1), "commit": commit(), "machine": machine()}
    RECORDS.parent.mkdir(parents=True, exist_ok=True)
    with RECORDS.open("a") as file:
        file.write(json.dumps(record) + "\n")
    shown = ("set", "model", "way", "lr", "seed", "validation", "test", "served", "peak", "cpu_seconds")
    print(*(f"{record[each]:.4f}" if each in ("validation", "test") else record[each] for each in shown), flush=True)


def in_process(work: Callable[[], Record]) -> Record:
    """What `work` returns in a process of its own, a copy of this one."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_send, args=(work, writer))
    process.start()
    writer.close()
    try:
        found: Record | ValueError = reader.recv()
    except EOFError:
        raise RuntimeError("the process of a run ended without a result: see its output above.") from None
    process.join()
    if isinstance(found, ValueError):
        raise found
    return found


def _send(work: Callable[[], Record], writer: Connection) -> None:
    try:
        writer.send(work())
    except ValueError as error:
        writer.send(error)


def key(record: Record) -> tuple[Any, ...]:
    """What tells runs apart."""
    return tuple(record[each] for each in ("set", "model", "way", "lr", "seed"))


def read_records() -> list[Record]:
    """The runs so far."""
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def chosen(records: list[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """The runs of each set, model and way with the rate that validates best, over the seeds that all rates have."""
    rates: dict[tuple[str, str, str], dict[float, list[Record]]] = {}
    for each in records:
        rates.setdefault(key(each)[:3], {}).setdefault(each["lr"], []).append(each)
    return {own: _best(list(runs.values())) for own, runs in rates.items()}


def _best(runs: list[list[Record]]) -> list[Record]:
    seeds = set.intersection(*({each["seed"] for each in of_rate} for of_rate in runs))
    return min(runs, key=lambda of_rate: average([each for each in of_rate if each["seed"] in seeds], "validation"))


def average(runs: list[Record], figure: str) -> float:
    """The mean over seeds."""
    return mean(float(each[figure]) for each in runs)
