"""The pictures of the page of `cce report`, taken in a real browser."""

import shutil
import struct
from importlib.util import find_spec

import pytest

from cce_lab import make_report
from cce_lab.report.vega import can_draw

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM and find_spec("playwright") and can_draw()), reason="needs chromium, playwright and vl-convert"
    ),
]


def test_every_picture_of_a_page_is_taken_from_where_it_begins(tmp_path):
    import screenshots
    from playwright.sync_api import sync_playwright

    make_report(screenshots.RUNS, out=tmp_path)
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for name, options in screenshots.SHOTS.items():
            screenshots.take(browser, tmp_path / "index.html", tmp_path / f"{name}.png", **options)
        browser.close()
    for name, options in screenshots.SHOTS.items():
        assert struct.unpack(">II", (tmp_path / f"{name}.png").read_bytes()[16:24]) == options["size"]
        assert (screenshots.ROOT / "docs" / "figures" / f"{name}.png").exists()
    light, dark = ((tmp_path / f"report-{name}.png").read_bytes() for name in ("light", "dark"))
    assert light != dark
