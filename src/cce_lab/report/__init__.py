"""Records of runs → compression factors, tables, charts and a page; figures of theory → pictures. No torch."""

from cce_lab.report.factors import Factor, compression_factor, factor_over_seeds
from cce_lab.report.groups import Collected, collect
from cce_lab.report.plots import draw_figure
from cce_lab.report.run_page import write_run_page
from cce_lab.report.tables import sweep_table
from cce_lab.report.vega import HINT, can_draw
from cce_lab.report.writing import Report, make_report, write_report

__all__ = [
    "HINT",
    "Collected",
    "Factor",
    "Report",
    "can_draw",
    "collect",
    "compression_factor",
    "draw_figure",
    "factor_over_seeds",
    "make_report",
    "sweep_table",
    "write_report",
    "write_run_page",
]
