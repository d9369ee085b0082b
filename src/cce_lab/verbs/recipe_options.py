"""What `cce tune` and `cce sweep` share: the options that name a recipe, and a list of runs for a dry run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from cce.text import format_table

if TYPE_CHECKING:
    import argparse

    from cce_lab.sweeps import Experiment, Sweep

RUN_NAMES = ("series", "cap", "num_params", "num_runs")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that both verbs have."""
    parser.add_argument("recipe", metavar="RECIPE", help="TOML file, or a name that `cce recipes` shows")
    parser.add_argument("--out", type=Path, default=None, help="folder of the sweep (default: runs/sweeps/RECIPE)")
    parser.add_argument(
        "--like",
        metavar="RECIPE",
        default=None,
        help="take data, model, optimizer, epochs and caps from this recipe; what is said of tables stays",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=None,
        help="prepared data set, or its name in runs/data, instead of the recipe's",
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; cores are shared out (default: 1)")
    parser.add_argument("--engine", default="local", help="local, ray, or ray://host:port (default: local)")
    parser.add_argument("--only", nargs="+", metavar="SERIES", default=None, help="run these series only")
    parser.add_argument("--dry-run", action="store_true", help="list the runs that are left, and run none")


def make_experiment(options: argparse.Namespace, seeds: list[int] | None = None) -> Experiment:
    """The experiment that these options name."""
    from cce.workers import check_engine
    from cce_lab.sweeps import Experiment

    check_engine(options.engine)
    return Experiment(
        options.recipe,
        out=options.out,
        like=options.like,
        data=options.data,
        only=options.only,
        seeds=seeds,
        plugins=options.plugins,
    )


def print_left(sweep: Sweep, *, as_json: bool) -> None:
    """The runs that are left: for each series and cap, the parameters of its tables and the number of runs."""
    left = sweep.left()
    found = Counter((run.series, run.config.cap, run.num_params) for run in left)
    rows = [(*run, count) for run, count in found.items()]
    if as_json:
        print(json.dumps([dict(zip(RUN_NAMES, row, strict=True)) for row in rows]))
        return
    cells = [(series, "" if cap is None else f"{cap:,}", f"{size:,}", count) for series, cap, size, count in rows]
    table = format_table(("series", "cap", "params", "runs"), cells)
    print(f"{table}\n{len(left)} of {len(sweep.chosen)} runs are left.")
