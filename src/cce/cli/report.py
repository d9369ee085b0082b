"""`cce report`: one page, figures and tables from runs, finished or not."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cce.records import strict_json

if TYPE_CHECKING:
    from cce.report import Collected, Section

EXAMPLE = """examples:
  cce report runs/sweep
  cce report runs/clicks-cce runs/clicks-full --out report
  cce report results/kaggle.jsonl --json
  cce report runs/sweep --watch 10
  cce report runs/sweep --format latex > tables.tex"""
FORMATS = ("html", "latex", "markdown")
SECONDS = 15.0


def add_verb(verbs: Any) -> None:
    """Add the verb to the parser."""
    parser = verbs.add_parser(
        "report",
        help="make a page, figures and tables from the records of runs",
        description="Make one HTML page that needs no network, figures (SVG, PNG) and tables (CSV, Markdown) from the "
        "records of runs: scores against bytes and params, compression factors, training curves, clusterings, memory. "
        "For papers: tables with booktabs and figures as PDF (latex), or one Markdown file, printed as well.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUNS", help="files of records (.jsonl), or folders of sweeps and runs"
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="folder of the report (default: report, inside the first of RUNS)"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="html",
        help="a page, or a document for a paper, which is printed too (default: %(default)s)",
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
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Read the runs, write the report and print what was found."""
    from cce.report import collect, watch, write_report

    out = options.out or default_folder(options.runs[0])
    if options.watch is not None:
        _check_watch(options)
        report = None if options.json else _report
        figures = not options.no_figures
        found, sections, paths = watch(options.runs, out, seconds=options.watch, figures=figures, report=report)
    else:
        found = collect(options.runs)
        sections, paths = write_report(found, out, form=options.format, figures=not options.no_figures)
    if options.json:
        print(_as_json(found, sections, paths, out))
    elif options.format != "html":
        print(paths[0].read_text(encoding="utf-8"), end="")
        print(f"cce report: {len(paths)} files in {out}", file=sys.stderr)
    else:
        print(_as_text(found, sections, paths, out))


def _check_watch(options: argparse.Namespace) -> None:
    if not options.watch > 0:
        raise ValueError(f"watch must be a positive number of seconds, got {options.watch}.")
    if options.format != "html":
        raise ValueError(f"watch must go with the format html, got {options.format!r}.")


def default_folder(runs: Path) -> Path:
    """`report` inside a folder, or beside a file."""
    return (runs if runs.is_dir() else runs.parent) / "report"


def _report(found: Collected) -> None:
    from cce.report import progress_text

    print(progress_text(found), file=sys.stderr)


def _as_json(found: Collected, sections: list[Section], paths: list[Path], out: Path) -> str:
    counts = {"finished": len(found.records), "unfinished": len(found.live)}
    groups = [section.to_dict() for section in sections]
    files = [str(path) for path in paths]
    return strict_json({"out": str(out), "runs": counts, "groups": groups, "notes": found.notes, "files": files})


def _as_text(found: Collected, sections: list[Section], paths: list[Path], out: Path) -> str:
    from cce.report import HINT, can_draw, progress_text

    lines = []
    for section in sections:
        lines += [section.group.title, f"  {section.headline}"]
        lines += [f"  {section.caution}"] if section.caution else []
        lines += [f"  {each}" for each in section.comparisons if each.second == section.group.full_series]
    lines += [f"note: {note}" for note in found.notes]
    lines.append(f"{progress_text(found)}; {len(paths)} files in {out}")
    lines.append(f"page: {out / 'index.html'}" if can_draw() else f"no page and no figures, tables only: {HINT}")
    return "\n".join(lines)
