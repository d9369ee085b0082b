"""`cce report`: one page, figures and tables from runs, finished or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cce.records import strict_json

if TYPE_CHECKING:
    import argparse

    from cce_lab.report import Collected, Report

HELP = "make a page, figures and tables from the records of runs"
EXAMPLE = """examples:
  cce report runs/sweep
  cce report runs/clicks-cce runs/clicks-full --out report
  cce report results/kaggle.jsonl --json
  cce report runs/sweep --watch 10"""
SECONDS = 15.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = (
        "Make one HTML page that needs no network, figures (SVG, PNG) and tables (CSV, Markdown) from the "
        "records of runs: scores against bytes and params, compression factors, training curves, clusterings, memory."
    )
    parser.epilog = EXAMPLE
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUNS", help="files of records (.jsonl), or folders of sweeps and runs"
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="folder of the report (default: report, inside the first of RUNS)"
    )
    parser.add_argument("--no-figures", action="store_true", help="write no files of figures")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=float,
        const=SECONDS,
        default=None,
        metavar="SECONDS",
        help=f"write the page again every SECONDS until all runs are finished (default: {SECONDS:.0f})",
    )
    parser.add_argument("--json", action="store_true", help="print tables and paths as JSON")


def run(options: argparse.Namespace) -> None:
    """Read the runs, write the report and print what was found."""
    from cce_lab.report import make_report, watch

    figures = not options.no_figures
    if options.watch is None:
        report = make_report(*options.runs, out=options.out, figures=figures)
    else:
        if not options.watch > 0:
            raise ValueError(f"watch must be a positive number of seconds, got {options.watch}.")
        tell = None if options.json else _print_progress
        report = watch(options.runs, options.out, seconds=options.watch, figures=figures, report=tell)
    if options.json:
        print(_as_json(report))
    else:
        print(_as_text(report))


def _print_progress(found: Collected) -> None:
    from cce_lab.report import progress_text

    print(progress_text(found), file=sys.stderr)


def _as_json(report: Report) -> str:
    counts = {"finished": len(report.found.records), "unfinished": len(report.found.live)}
    groups = [section.to_dict() for section in report.sections]
    files = [str(path) for path in report.files]
    values = {"out": str(report.folder), "runs": counts, "groups": groups, "notes": report.found.notes, "files": files}
    return strict_json(values)


def _as_text(report: Report) -> str:
    from cce_lab.report import HINT, can_draw, progress_text

    lines = []
    for section in report.sections:
        lines += [section.group.title, f"  {section.headline}"]
        lines += [f"  {section.caution}"] if section.caution else []
        lines += [f"  {each}" for each in section.comparisons if each.second == section.group.full_series]
    lines += [f"note: {note}" for note in report.found.notes]
    lines.append(f"{progress_text(report.found)}; {len(report.files)} files in {report.folder}")
    lines.append(f"page: {report.page}" if can_draw() else f"no page and no figures, tables only: {HINT}")
    return "\n".join(lines)
