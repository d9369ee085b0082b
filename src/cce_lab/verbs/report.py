"""`cce report`: one page and tables from the records of runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cce.records import strict_json

if TYPE_CHECKING:
    from cce_lab.report import Report

HELP = "make a page and tables from the records of runs"
EXAMPLE = """examples:
  cce report runs/sweep
  cce report runs/clicks-cce runs/clicks-full --out report
  cce report results/kaggle.jsonl --json
  cce report runs/sweep --format latex"""
FORMATS = ("html", "latex")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.description = (
        "Make one HTML page that needs no network, and tables (CSV, Markdown) from the records of runs: scores against "
        "bytes and params, compression factors, training curves. For papers: tables as LaTeX and charts as PDF."
    )
    parser.epilog = EXAMPLE
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUNS", help="files of records (.jsonl), or folders of sweeps and runs"
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="folder of the report (default: report, inside the first of RUNS)"
    )
    about = "a page, or tables as LaTeX (booktabs) and charts as PDF (default: %(default)s)"
    parser.add_argument("--format", choices=FORMATS, default="html", help=about)
    parser.add_argument("--json", action="store_true", help="print tables and paths as JSON")


def run(options: argparse.Namespace) -> None:
    """Read the runs, write the report and print what was found."""
    from cce_lab.report import make_report

    report = make_report(*options.runs, out=options.out, format=options.format)
    if options.json:
        found = {"out": str(report.folder), "runs": len(report.found.records), "notes": report.found.notes}
        groups, files = [section.to_dict() for section in report.sections], [str(path) for path in report.files]
        print(strict_json(found | {"groups": groups, "files": files}))
    else:
        print(_as_text(report))


def _as_text(report: Report) -> str:
    from cce_lab.report import HINT, can_draw

    lines = []
    for section in report.sections:
        lines += [section.group.title, f"  {section.headline}"]
        lines += [f"  {section.caution}"] if section.caution else []
    lines += [f"note: {note}" for note in report.found.notes]
    lines.append(f"{len(report.found.records)} runs; {len(report.files)} files in {report.folder}")
    if not can_draw():
        lines.append(f"no page and no charts, tables only: {HINT}")
    elif report.page in report.files:
        lines.append(f"page: {report.page}")
    return "\n".join(lines)
