"""`cce report`: one page and tables from the records of runs."""

import argparse
from pathlib import Path

from cce.records import strict_json

HELP = "make a page and tables from the records of runs"
DESCRIPTION = (
    "Make one HTML page that needs no network, and tables (CSV) from the records of runs: scores against "
    "bytes and params, compression factors, training curves. For papers: tables as LaTeX and charts as PDF."
)
EXAMPLE = """examples:
  cce report runs/sweep
  cce report runs/clicks-cce runs/clicks-full --out report
  cce report results/kaggle.jsonl --json
  cce report runs/sweep --format latex"""
FORMATS = ("html", "latex")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "files of records (.jsonl), or folders of sweeps and runs"
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help=about)
    parser.add_argument("--out", type=Path, help="folder of the report (default: report, inside the first of RUNS)")
    about = "a page, or tables as LaTeX (booktabs) and charts as PDF (default: %(default)s)"
    parser.add_argument("--format", choices=FORMATS, default="html", help=about)
    parser.add_argument("--json", action="store_true", help="print tables and paths as JSON")


def run(options: argparse.Namespace) -> None:
    from cce_lab.report.vega import HINT, can_draw
    from cce_lab.report.writing import make_report

    report = make_report(*options.runs, out=options.out, format=options.format)
    if options.json:
        found = {"out": str(report.folder), "runs": len(report.found.records), "notes": report.found.notes}
        groups, files = [section.to_dict() for section in report.sections], [str(path) for path in report.files]
        print(strict_json(found | {"groups": groups, "files": files}))
        return
    for section in report.sections:
        print(section.group.title, f"  {section.headline}", sep="\n")
        print(f"  {section.caution}\n" if section.caution else "", end="")
    print("".join(f"note: {note}\n" for note in report.found.notes), end="")
    print(f"{len(report.found.records)} runs; {len(report.files)} files in {report.folder}")
    if not can_draw():
        print(f"no page and no charts, tables only: {HINT}")
    elif report.page in report.files:
        print(f"page: {report.page}")
