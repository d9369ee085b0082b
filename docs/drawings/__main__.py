"""Write every drawing to docs/figures: `PYTHONPATH=docs python -m drawings`."""

from pathlib import Path

from drawings.gallery import DRAWINGS

FIGURES = Path(__file__).resolve().parents[1] / "figures"

for name, draw in DRAWINGS.items():
    (FIGURES / f"{name}.svg").write_text(draw(), encoding="utf-8")
