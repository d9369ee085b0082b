"""Pictures of figures: they are written, they show what the figure has, and without vl-convert that is said."""

import pytest

from cce_lab.report import plots as charts
from cce_lab.report import vega
from cce_lab.report.vega import GREY, HUES
from cce_lab.theory import Figure, Series
from cce_lab.theory.figure import level

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
LINES = (Series("run", (0, 1, 2), (1.0, 0.5, 0.0), (0.9, 0.4, 0.0), (1.1, 0.6, 0.1)), level("best table", 0.1, 2))


def figure(**options):
    return Figure("name", "The title", "step", "loss", LINES, (), **options)


@pytest.mark.slow
@needs_vega
@pytest.mark.parametrize("log_y", [False, True])
def test_lines_become_an_svg(tmp_path, log_y):
    path = charts.draw_figure(figure(log_y=log_y), tmp_path)
    assert list(tmp_path.iterdir()) == [path] == [tmp_path / "name.svg"]
    svg = path.read_text()
    assert HUES[0] in svg  # the colours of the report: the first hue, and grey for what is compared with
    assert GREY in svg
    for word in ("The title", "step", "loss", "run", "best table"):
        assert word in svg


def test_what_a_logarithmic_axis_cannot_show_is_left_out():
    assert [point["mean"] for point in charts.figure_rows(figure(log_y=True)) if point["series"] == "run"] == [1.0, 0.5]
    assert [point["mean"] for point in charts.figure_rows(figure()) if point["series"] == "run"] == [1.0, 0.5, 0.0]


def test_without_vl_convert_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(vega, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[report\]'"):
        charts.draw_figure(figure(), tmp_path)
    assert list(tmp_path.iterdir()) == []
