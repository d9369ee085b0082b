"""Records of runs → compression factors, tables, charts and a page; figures of theory → pictures. No torch."""

from cce_lab.report.charts import draw_figure
from cce_lab.report.factors import Factor, compression_factor, factor_over_seeds
from cce_lab.report.overview import sweep_table
from cce_lab.report.page import progress_text
from cce_lab.report.reading import Collected, collect
from cce_lab.report.run_page import write_run_page
from cce_lab.report.sections import Section, make_sections
from cce_lab.report.vega import HINT, can_draw
from cce_lab.report.writing import InlineFigure, Report, make_report, watch, write_report

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
    "make_report",
    "make_sections",
    "progress_text",
    "sweep_table",
    "watch",
    "write_report",
    "write_run_page",
]
