"""One table of 10 million to a billion ids, from its first row to lookups of what was saved: peak memory and seconds.

    python -m benchmarks.scale [--quick] [--ids 10_000_000 …] [--seen 200_000_000] [--ranks 2]
    python -m benchmarks.scale --table    # writes the table of docs/memory.md from the record

Every case is a process of its own: int8 rows of 16 values, one byte an id when served. Rows are given by counts that
are known beforehand; with `--seen`, that many of the ids, all over the vocabulary, earn theirs in steps. With `--ranks`
that many processes share the rows out, and figures are those of the process that has the largest. Then come
steps on batches drawn by Zipf's law, `finalize`, `save`, and a new model that loads the file and looks the batches up.
Peaks are resident memory above what there was when all code was loaded and no table was made; seconds are CPU time of
all threads. A case that does not fit in the memory that is available is named and left out. The record has the commit
of every figure; new ones take the place of old.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.side_by_side import RESULTS, PeakMemory, commit, give_back_memory, keep, resident
from cce.text import format_bytes

if TYPE_CHECKING:
    import torch

    import cce

DIM, BATCH, STEPS, ROWS = 16, 8_192, 200, 256
BATCH_OF_NEW = 65_536  # ids of a step, while they earn rows
STRIDE = 618_034_003  # between the ids of one rank and the next, a prime: frequent ids are not neighbours
SIZES = (10_000_000, 100_000_000, 1_000_000_000)
SEEN = {1_000_000_000: 200_000_000}
FULL = 12 * DIM  # bytes an id of a full table with Adam's two moments
KEY = ("num_ids", "num_seen", "ranks")  # of a case
PHASES = ("rows", "steps", "finalize", "save", "open", "lookups")
PAGE, MARKS = Path("docs/memory.md"), ("<!-- scale: begin -->\n", "<!-- scale: end -->")


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ids", type=int, nargs="*", default=None)
    parser.add_argument("--seen", type=int, default=None, help="ids that earn rows in steps")
    parser.add_argument("--table", action="store_true", help="write the table of docs/memory.md from the record")
    parser.add_argument("--ranks", type=int, default=1, help="processes that share the rows out")
    parser.add_argument("--one", nargs=5, default=None, help=argparse.SUPPRESS)  # sizes, rank, store: prints JSON
    options = parser.parse_args(argv)
    if options.table:
        PAGE.write_text(with_table(PAGE.read_text(), read()))
        return []
    if options.one:
        *numbers, store = options.one
        print(json.dumps(measure(*map(int, numbers), store)))
        return []
    sizes = options.ids or ([100_000] if options.quick else SIZES)
    cases = [(size, options.seen or size) for size in sizes]
    if options.quick or not options.ids:
        cases += [(100_000, 20_000)] if options.quick else list(SEEN.items())
    figures = []
    for size, seen in cases:
        if needed(size, seen) > available():
            sizes_of = format_bytes(needed(size, seen)), format_bytes(available())
            print("{:,} ids need {}, and {} are available".format(size, *sizes_of), file=sys.stderr)
            continue
        figures.append(_in_processes(size, seen, options.ranks))
        print(table(figures[-1:]), file=sys.stderr, flush=True)
        if not options.quick:
            known = {tuple(each[name] for name in KEY): each for each in [*read(), *figures]}
            keep("scale", [known[key] for key in sorted(known)])
    return figures


def needed(size: int, seen: int) -> int:
    """Bytes at the peak, about: rows, pointers or counts beside them, the map, and what does not depend on ids."""
    return (DIM + 4) * seen + size // 5 + (1 << 29)


def available() -> int:
    """Bytes of memory that nobody uses."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


def read() -> list[dict[str, Any]]:
    """The figures that are stored."""
    return json.loads((RESULTS / "scale.json").read_text())["figures"]  # type: ignore[no-any-return]


def measure(size: int, seen: int, ranks: int, rank: int, store: str) -> dict[str, Any]:
    """Seconds and the peak of each phase, in this process."""
    from torch import distributed

    if ranks > 1:
        distributed.init_process_group("gloo", init_method=f"file://{store}/store", rank=rank, world_size=ranks)
    _Case(3_000, seen * 3_000 // size, rank, store).run()  # all code is loaded from here on
    give_back_memory()
    found = _Case(size, seen, rank, store).run()
    if ranks > 1:
        distributed.destroy_process_group()
    facts = {"commit": commit(), "num_ids": size, "num_seen": seen, "ranks": ranks, "dim": DIM, "full": FULL * size}
    return facts | found


class _Case:
    """A table and what is done to it, phase after phase."""

    def __init__(self, size: int, seen: int, rank: int, folder: str) -> None:
        import torch

        from benchmarks.traffic import draw_ids

        generator = torch.Generator().manual_seed(1 + rank)
        self.size, self.seen, self.path = size, seen, Path(folder) / f"{size}.safetensors"
        self.batches = [draw_ids("zipf", seen, BATCH, generator) for _ in range(STEPS)]
        self.before = resident()

    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = {"phases": {}}
        for phase in PHASES:
            started, start = time.process_time(), resident()
            with PeakMemory() as peak:
                getattr(self, phase)()
            seconds = time.process_time() - started
            give_back_memory()
            figures = {"seconds": seconds, "peak": start - self.before + peak.bytes}
            found["phases"][phase] = figures | {"held": resident() - self.before}
            print(f"{self.size:,} {phase}: {figures}", file=sys.stderr, flush=True)
        return found | {"file": self.path.stat().st_size, "steps": STEPS, "batch": BATCH}

    def make(self) -> cce.EmbeddingCollection:
        import cce

        return cce.EmbeddingCollection({"id": self.size}, DIM, seed=0, shard=True)  # a process alone has all rows

    def rows(self) -> None:
        """Give rows, by counts or by steps."""
        import torch

        import cce

        self.model = self.make()
        if self.seen == self.size:
            counts = torch.ones((), dtype=torch.uint8).expand(self.size)  # as if they lay in a mapped file
            self.model.tables["id"].give_rows(counts)
        self.optimizer = cce.optim.Adam(self.model, lr=1e-3)
        for first in range(0, self.seen if self.seen < self.size else 0, BATCH_OF_NEW):
            self.step(torch.arange(first, min(first + BATCH_OF_NEW, self.seen)))

    def step(self, ranks: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model((ranks * STRIDE % self.size).unsqueeze(1)).square().sum().backward()
        self.optimizer.step()

    def steps(self) -> None:
        """Train on batches drawn by Zipf's law."""
        for ranks in self.batches:
            self.step(ranks)

    def finalize(self) -> None:
        """One byte an id."""
        import cce

        del self.optimizer
        self.model.zero_grad()
        cce.finalize(self.model, num_columns=1, num_rows=ROWS, seed=0)
        self.expected = self.looked_up()

    def looked_up(self) -> torch.Tensor:
        import torch

        with torch.no_grad():
            return self.model((self.batches[0] * STRIDE % self.size).unsqueeze(1))

    def save(self) -> None:
        """Write the file."""
        import cce

        cce.save(self.model, self.path)

    def open(self) -> None:
        """Let a new model have what the file holds."""
        import cce

        del self.model
        self.model = self.make()
        cce.load(self.path, into=self.model)

    def lookups(self) -> None:
        """Look all batches up."""
        import torch

        with torch.no_grad():
            for ranks in self.batches:
                self.model((ranks * STRIDE % self.size).unsqueeze(1))
        if not torch.equal(self.looked_up(), self.expected):
            raise RuntimeError("the loaded table has other vectors than the one that was saved.")


def _in_processes(size: int, seen: int, ranks: int) -> dict[str, Any]:
    """The figures of the first process, with the largest of all processes in each phase."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        numbers = [[str(each) for each in (size, seen, ranks, rank)] for rank in range(ranks)]
        commands = [[sys.executable, "-m", "benchmarks.scale", "--one", *each, folder] for each in numbers]
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
        said = [process.communicate()[0] for process in started]
    found = [json.loads(text.splitlines()[-1]) for text in said]
    for phase, figures in found[0]["phases"].items():
        figures.update({name: max(each["phases"][phase][name] for each in found) for name in figures})
    return found[0]  # type: ignore[no-any-return]


def with_table(text: str, figures: list[dict[str, Any]]) -> str:
    """A page with its table between the two marks."""
    begin, end = MARKS
    before, rest = text.split(begin)
    return f"{before}{begin}{table(figures)}{end}{rest.split(end)[1]}"


def table(figures: list[dict[str, Any]]) -> str:
    """All cases, and beside them what full tables would take, which is computed."""
    heads = ("ids with rows, of possible ones", "peak in training", "of finalize", "the file", "CPU s: rows")
    heads = (*heads, f"{STEPS} steps", "finalize", "save and load", f"{STEPS} lookups", "full, Adam, computed")
    lines = [f"| {' | '.join(heads)} |", "|:--|" + "--:|" * (len(heads) - 1)]
    for each in figures:
        peaks = {name: phase["peak"] for name, phase in each["phases"].items()}
        seconds = {name: phase["seconds"] for name, phase in each["phases"].items()}
        sizes = (max(peaks["rows"], peaks["steps"]), peaks["finalize"], each["file"])
        spent = (*(seconds[name] for name in PHASES[:3]), seconds["save"] + seconds["open"], seconds["lookups"])
        shares = f", {each['ranks']} processes" if each["ranks"] > 1 else ""
        cells = [f"{each['num_seen']:,} of {each['num_ids']:,}{shares}", *map(format_bytes, sizes)]
        cells += [*(f"{each:.1f}" for each in spent), format_bytes(each["full"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
