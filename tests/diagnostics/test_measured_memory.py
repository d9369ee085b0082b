"""What `cce.summary` says of bytes, beside the resident memory of processes that train such tables."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import memory, scale

ROOT = Path(__file__).parents[2]
FIXED = 1 << 20  # bytes that do not depend on tables: pages of the allocator, of code that runs first
SCRIPT = """
import json, sys, torch
from benchmarks import memory, scale
memory.MOST_EARNED = 150_000  # more ids get their rows by counts: as many rows, and fewer steps
torch.set_num_threads(1)  # other threads of a clustering keep memory that is not of tables
print(json.dumps(memory.measure(sys.argv[1], [int(sys.argv[2])], int(sys.argv[3]))))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
@pytest.mark.parametrize(
    ("kind", "num_ids", "dim"),
    [
        ("full, Adam", 100_000, 16),
        ("full, SparseAdam", 100_000, 64),
        ("cce", 100_000, 64),
        ("cce", 2_000_000, 16),
        ("cce-paper", 3_000_000, 16),
        ("hash", 3_000_000, 16),
    ],
)
def test_bytes_in_training_and_served_are_those_measured(kind, num_ids, dim):
    command = [sys.executable, "-c", SCRIPT, kind, str(num_ids), str(dim)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    figures = json.loads(result.stdout.splitlines()[-1])
    for form in ("held", "served") if kind.startswith("cce") else ("held",):
        assert abs(figures[form] - figures[f"{form}_by_summary"]) <= 0.15 * figures[form] + FIXED, form


@pytest.mark.parametrize("benchmark", [memory, scale], ids=["memory", "scale"])
def test_the_page_shows_what_the_record_says(monkeypatch, benchmark):
    monkeypatch.chdir(ROOT)
    text = benchmark.PAGE.read_text()
    assert benchmark.with_table(text, benchmark.read()) == text, f"run python -m {benchmark.__name__} --table"


def test_bytes_in_training_of_large_tables_are_those_in_the_record():
    figures = [figure for figure in memory.read() if figure.get("held_by_summary")]
    assert {"cce", "cce-paper", "full, SparseAdam"} <= {figure["table"] for figure in figures}
    for figure in figures:
        assert abs(figure["held"] - figure["held_by_summary"]) <= 0.15 * figure["held"] + FIXED, figure


def test_peaks_of_up_to_a_billion_ids_are_those_of_the_formula(monkeypatch):
    """`docs/memory.md`: a share of the rows, a bit and a half for each possible id, and a byte more in `finalize`."""
    monkeypatch.chdir(ROOT)
    figures = scale.read()
    assert {10_000_000, 100_000_000} <= {figure["num_ids"] for figure in figures}
    for figure in figures:
        num_rows = figure["num_seen"] / figure["ranks"]
        held = 19 * num_rows + 3 * figure["num_ids"] / 16
        for phase, nbytes in (("steps", held), ("finalize", held + num_rows)):
            assert figure["phases"][phase]["peak"] == pytest.approx(nbytes, rel=0.15), (phase, figure)
