"""Kill real processes with SIGKILL at random moments, go on, and compare with what nobody disturbed, bit for bit.

`make soak`, or `python tests/soak.py --kills 50 --seed 0 --only train`. The moments come from the seed, in seconds from
a start, so two runs with one seed differ a little. A folder whose end is not that of its undisturbed twin is named and
kept, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from benchmarks.criteo_text import write_criteo_text

from cce.distributed import pack
from cce.records import read_records
from cce.run_folder import RunFolder
from cce.training.checkpoint import list_checkpoints, read_checkpoint
from helpers.sweeps import essence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SOURCE = Path(__file__).resolve().parents[1] / "src"
MOST_KILLS = 8  # of one chain, before it is left to end
CLOCK = ("seconds", "peak_nbytes")  # of a state: what depends on the machine
START_SHARE = 0.2  # of kills come while Python and torch are still being loaded
SMALL = ("--embedding-dim", "8", "--batch-size", "64", "--model-options", "bottom=[8]", "top=[8]")
SMALL += ("--set", "early_stopping=false")
OFTEN = ("--epochs", "3", "--set", "validations_per_epoch=12")
CLUSTERED = ("--cluster-at", *(str(number / 5) for number in range(1, 13)))
PAPER = ("--method", "cce-paper", "--cap", "1600", *CLUSTERED)
SPARSE = ("--method-options", "sparse=true", "--optimizer", "adagrad", "--lr", "0.05")
TRAINED = {  # options of `cce train`
    "cce": ("--cap", "1600", "--set", "threads=1"),
    "cce-refits": ("--cap", "1600", "--refits", "3", "--set", "threads=1"),
    "cce-paper": (*PAPER, "--set", "threads=1"),
    "cce-sparse": (*PAPER, *SPARSE, "--set", "threads=2"),
    "collide": ("--method", "collide", "--cap", "8000", *CLUSTERED, "--set", "threads=1"),
    "dhe": ("--method", "dhe", "--cap", "1600", "--set", "threads=2"),
    "hash": ("--method", "hash", "--cap", "1600", "--optimizer", "sgd", "--lr", "0.1", "--set", "threads=1"),
}
RECIPE = """
[data]
name = "clicks"
prepare = "synthetic --rows 6000 --vocabulary-sizes 600 200 50 --clusters 8"

[train]
embedding_dim = 8
batch_size = 64
optimizer = "adam"
model_options = { bottom = [8], top = [8] }
epochs = 2
cluster_at = [0.4, 0.8, 1.2, 1.6]
validations_per_epoch = 8

[sweep]
methods = ["full", "cce-paper"]
caps = [800]
seeds = [0]

[series.pq]
method = "pq"
start_from = "full"
epochs = 0
"""


@dataclass
class Job:
    """A command that writes into a folder, and goes on there when it is given once more."""

    name: str
    words: tuple[str, ...]  # of `cce`, with OUT for the folder
    again: tuple[str, ...]  # once the folder has `sign`
    sign: str
    seconds: float = 0.0  # that it takes undisturbed
    start_seconds: float = 0.0  # of these, to load Python and torch
    expected: dict[str, Any] = field(default_factory=dict)

    def start(self, out: Path) -> subprocess.Popen[str]:
        words = self.again if (out / self.sign).exists() else self.words
        command = [sys.executable, "-m", "cce", *(str(out) if word == "OUT" else word for word in words)]
        paths = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": paths}
        pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        out.parent.mkdir(exist_ok=True)  # also for the data that a sweep prepares there
        return subprocess.Popen(command, cwd=out.parent, env=environment, **pipes)

    def run_undisturbed(self, out: Path) -> None:
        """Learn how long it takes and what it leaves."""
        process, started = self.start(out), time.monotonic()
        while process.poll() is None:
            if self.words != self.again and not self.start_seconds and (out / self.sign).exists():
                self.start_seconds = time.monotonic() - started
            time.sleep(0.01)
        finish(process, self.name)
        self.seconds = time.monotonic() - started
        self.expected = self.content(out)

    def content(self, out: Path) -> dict[str, Any]:
        """All that must be the same, by name."""
        raise NotImplementedError


class Training(Job):
    """`cce train`, and `cce train --resume`."""

    def content(self, out: Path) -> dict[str, Any]:
        checkpoint = read_checkpoint(list_checkpoints(out / "checkpoints")[-1])
        tensors = {f"model {name}": tensor for name, tensor in checkpoint.model.items()}
        state = {name: value for name, value in checkpoint.state.items() if name not in CLOCK}
        plain = pack(state, tensors)
        (record,) = read_records(out / "record.jsonl")
        log = [without_clock(line) for line in RunFolder(out).scan_log()[0] if line["kind"] != "memory"]
        digests = {name: digest(tensor) for name, tensor in tensors.items()}
        return digests | {"state": plain, "record": essence(record), "log": log}


class Preparing(Job):
    """`cce prepare`, given once more."""

    def content(self, out: Path) -> dict[str, Any]:
        files = sorted(path for path in out.rglob("*") if path.is_file() and path.name != "manifest.json")
        return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class Sweeping(Job):
    """`cce sweep`, given once more. It prepares its data as well."""

    def content(self, out: Path) -> dict[str, Any]:
        records = {record.name: essence(record) for record in read_records(out / "records.jsonl")}
        for record in records.values():
            del record["config"]["data"]  # lies beside each sweep
        return records


def digest(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], str]:
    content = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return str(tensor.dtype), tuple(tensor.shape), hashlib.sha256(content).hexdigest()


def without_clock(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "seconds"}


def finish(process: subprocess.Popen[str], name: str) -> None:
    _, err = process.communicate()
    if process.returncode:
        sys.exit(f"soak: {name} ended with {process.returncode}:\n{err[-3000:]}")


def make_jobs(folder: Path, only: Sequence[str]) -> list[Job]:
    """Undisturbed runs of every kind, the jobs that the kills will go to in turns."""
    jobs: list[Job] = []
    if "train" in only:
        data = folder / "clicks"
        prepare = ("prepare", "synthetic", "OUT", "--rows", "12000", "--vocabulary-sizes", "2000", "500", "60")
        Preparing("clicks", prepare, prepare, "manifest.json").run_undisturbed(data)
        for name, options in TRAINED.items():
            words = ("train", str(data), "--out", "OUT", *SMALL, *OFTEN, *options)
            jobs.append(Training(f"train-{name}", words, ("train", "--resume", "OUT"), "config.toml"))
    if "prepare" in only:
        raw = folder / "train.txt"
        write_criteo_text(raw, 60_000)
        words = ("prepare", "criteo-kaggle", str(raw), "OUT", "--jobs", "2")
        jobs.append(Preparing("prepare", words, words, "manifest.json"))
    if "sweep" in only:
        (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
        words = ("sweep", str(folder / "recipe.toml"), "--out", "OUT", "--jobs", "2")
        jobs.append(Sweeping("sweep", words, words, "records.jsonl"))
    for job in jobs:
        job.run_undisturbed(folder / f"{job.name}-whole" / "out")
        print(f"{job.name}: {job.seconds:.1f} s undisturbed", flush=True)
    return jobs


def kill_chain(job: Job, out: Path, rng: random.Random, most: int) -> Iterator[float]:
    """Start, kill and start again until it ends; the seconds after which each kill came."""
    for attempt in range(most):
        process, started = job.start(out), time.monotonic()
        active = job.seconds - job.start_seconds
        early = rng.random() < START_SHARE
        delay = rng.uniform(0, job.start_seconds) if early else job.start_seconds + rng.uniform(0, active)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        _, err = process.communicate()
        if process.returncode == -signal.SIGKILL:
            yield delay
        elif process.returncode:
            sys.exit(f"soak: {job.name} in {out} ended with {process.returncode}:\n{err[-3000:]}")
        else:
            if attempt == 0:  # nobody disturbed it: kills of the next chain come earlier
                job.seconds = min(job.seconds, max(time.monotonic() - started, 1.1 * job.start_seconds))
            return
    finish(job.start(out), f"{job.name} in {out}")


def differences(job: Job, out: Path) -> list[str]:
    found = job.content(out)
    names = sorted(found.keys() | job.expected.keys())
    return [name for name in names if found.get(name) != job.expected.get(name)]


def soak(jobs: list[Job], folder: Path, *, num_kills: int, seed: int) -> bool:
    """Whether all chains of kills ended as if there had been none."""
    rng, kills, chains, is_equal = random.Random(seed), 0, 0, True
    while kills < num_kills:
        job, out = jobs[chains % len(jobs)], folder / f"chain-{chains}" / "out"
        chains += 1
        for delay in kill_chain(job, out, rng, min(MOST_KILLS, num_kills - kills)):
            kills += 1
            print(f"kill {kills} of {num_kills}: {job.name}, {delay:.1f} s after its start", flush=True)
        if wrong := differences(job, out):
            is_equal = False
            print(f"chain {chains}: {out} DIFFERS from {job.name}-whole in {', '.join(wrong)}", flush=True)
        else:
            print(
                f"chain {chains}: {job.name} ended as if undisturbed ({len(job.expected)} parts compared)", flush=True
            )
            shutil.rmtree(out.parent)
    print(f"{kills} kills in {chains} chains: {'all equal' if is_equal else 'NOT all equal'}")
    return is_equal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: %(default)s)")
    kinds = ("train", "prepare", "sweep")
    parser.add_argument(
        "--only", nargs="+", choices=kinds, default=list(kinds), help="of these commands (default: all)"
    )
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cce-soak-"))
    jobs = make_jobs(folder, arguments.only)
    is_equal = soak(jobs, folder, num_kills=arguments.kills, seed=arguments.seed)
    if is_equal:
        shutil.rmtree(folder)
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
