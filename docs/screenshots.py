"""Screenshots of the page of `cce report`, of the runs on Book-Crossing: `python docs/screenshots.py` takes them again.

It needs the extra `report`, playwright, and Debian's Chromium (`apt install chromium`).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from cce_lab import make_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "results" / "real" / "bookcrossing"
METRIC = "label:has(select.metric)"  # what a picture may begin with
SHOTS: dict[str, dict[str, Any]] = {  # size, and what is different
    "report-bookcrossing": {"size": (1200, 1000)},
    "report-light": {"size": (1200, 900), "start": METRIC},
    "report-dark": {"size": (1200, 900), "start": METRIC, "dark": True},
    "report-phone": {"size": (390, 1400)},
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as tool:
        make_report(RUNS, out=folder)
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]  # as root, and in most containers
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for name, options in SHOTS.items():
            take(browser, Path(folder) / "index.html", ROOT / "docs" / "figures" / f"{name}.png", **options)
        browser.close()


def take(
    browser: Browser, page_file: Path, out: Path, *, size: tuple[int, int], start: str = "", dark: bool = False
) -> None:
    """One picture of a page, from the top or from an element on."""
    width, height = size
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    page.goto(page_file.as_uri())
    page.wait_for_selector("html[data-drawn]", timeout=60_000)
    top = page.locator(start).first.bounding_box()["y"] - 16 if start else 0
    page.screenshot(path=out, full_page=True, clip={"x": 0, "y": top, "width": width, "height": height})
    page.close()


if __name__ == "__main__":
    main()
