"""Pictures of figures: they are written, they show what the figure has, and without vl-convert that is said."""

import struct

import pytest

from cce_lab.report import plots as charts
from cce_lab.report import vega
from cce_lab.report.vega import GREY, HUES
from cce_lab.theory import Figure, Series
from cce_lab.theory.figure import level, steps

needs_vega = pytest.mark.skipif(not vega.can_draw(), reason="vl-convert is not installed")
LINES = (Series("run", (0, 1, 2), (1.0, 0.5, 0.0), (0.9, 0.4, 0.0), (1.1, 0.6, 0.1)), level("best table", 0.1, 2))


def figure(**options):
    return Figure("name", "The title", "step", "loss", LINES, (), **options)


@pytest.mark.slow
@needs_vega
@pytest.mark.parametrize("log_y", [False, True])
def test_lines_become_an_svg_and_a_png(tmp_path, log_y):
    paths = charts.draw_figure(figure(log_y=log_y), tmp_path)
    assert [path.name for path in paths] == ["name.svg", "name.png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["name.png", "name.svg"]
    svg = paths[0].read_text()
    assert HUES[0] in svg  # the colours of the report: the first hue, and grey for what is compared with
    assert GREY in svg
    for word in ("The title", "step", "loss", "run", "best table"):
        assert word in svg
    png = paths[1].read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    assert width > 1000
    assert height > 600


@pytest.mark.slow
@needs_vega
def test_named_places_become_bars(tmp_path):
    series = (steps("H1", [1.0, 2.0]), steps("error", [0.1, 0.2], is_reference=True))
    bars = Figure("bars", "Entropies", "method", "nats", series, (), ticks=("CE", "circular"))
    svg = charts.draw_figure(bars, tmp_path)[0].read_text()
    for word in ("Entropies", "CE", "circular", "H1"):
        assert word in svg
    assert "error" not in svg  # of another unit: in the table only


def test_what_a_logarithmic_axis_cannot_show_is_left_out():
    assert [point["y"] for point in charts._points(figure(log_y=True)) if point["series"] == "run"] == [1.0, 0.5]
    assert [point["y"] for point in charts._points(figure()) if point["series"] == "run"] == [1.0, 0.5, 0.0]


def test_without_vl_convert_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(vega, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[report\]'"):
        charts.draw_figure(figure(), tmp_path)
    assert list(tmp_path.iterdir()) == []
