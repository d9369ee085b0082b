"""Records of runs → compression factors, tables, charts and a page; figures of theory → pictures. No torch."""

from cce.report.charts import draw_figure
from cce.report.factors import Factor, compression_factor, factor_over_seeds
from cce.report.inline import InlineFigure, Report
from cce.report.overview import sweep_table
from cce.report.page import progress_text
from cce.report.reading import Collected, collect
from cce.report.run_page import write_run_page
from cce.report.sections import Section, make_sections
from cce.report.vega import HINT, can_draw
from cce.report.writing import watch, write_report

__all__ = [
    "HINT",
    "Collected",
    "Factor",
    "InlineFigure",
    "Report",
    "Section",
    "can_draw",
    "collect",
    "compression_factor",
    "draw_figure",
    "factor_over_seeds",
    "make_sections",
    "progress_text",
    "sweep_table",
    "watch",
    "write_report",
    "write_run_page",
]
