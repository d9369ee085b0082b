"""A report in a notebook: figures by name, tables as rows, and wrong names."""

import pytest

from cce_lab.report import Report
from cce_lab.report.reading import Collected
from cce_lab.report.writing import make_sections
from helpers.made_records import made_records


@pytest.fixture
def report(tmp_path):
    found = Collected(records=made_records())
    return Report(tmp_path, tuple(make_sections(found)), (), found)


def test_figures_draw_themselves(report):
    figure = report.figure("bce-bytes")
    assert figure.title.startswith("BCE against ")
    assert figure._repr_svg_().startswith("<svg")
    assert figure.picture("png").startswith(b"\x89PNG")


def test_tables_are_rows(report):
    assert report.rows() == report.sections[0].tables["summary"].as_dicts()
    assert report.rows("factors") == report.sections[0].tables["factors"].as_dicts()


def test_wrong_names_are_rejected(report):
    with pytest.raises(ValueError, match=r"figure must be one of .*bce-bytes.*; got 'bce-kilos'"):
        report.figure("bce-kilos")
    with pytest.raises(ValueError, match="table must be one of summary, factors, settings; got 'plots'"):
        report.rows("plots")
    with pytest.raises(IndexError, match=rf"section must lie in \[0, {len(report.sections)}\), got 99"):
        report.figure_names(99)


def test_a_notebook_shows_headlines(report):
    assert report.sections[0].headline.split()[0] in report._repr_html_()
