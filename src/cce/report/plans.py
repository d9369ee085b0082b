"""What a recipe tells a report: how many runs there will be, which series a run belongs to, what is expected."""

from __future__ import annotations

import re
import tomllib
from typing import Any


def read_plan(text: str) -> dict[str, Any]:
    """The recipe; empty if it is not TOML. `cce sweep` checks it, a report only reads along."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def num_planned(plan: dict[str, Any]) -> int:
    """Runs that a recipe asks for at most: of budgets that give the same tables, one is run."""
    sweep, own = _table(plan, "sweep"), _table(plan, "series")
    seeds, caps = len(sweep.get("seeds", (0,))), len(sweep.get("caps", ()))
    series = {name: {"method": name} for name in sweep.get("methods", ())} | own
    runs = (1 if each.get("method") == "full" else len(each.get("caps", range(caps))) for each in series.values())
    return seeds * sum(runs)


def series_by_name(run: str, plan: dict[str, Any]) -> str:
    """The series of a run by its name, `SERIES-cap8000-seed0`; empty if the recipe has none that fits."""
    names = [*_table(plan, "sweep").get("methods", ()), *_table(plan, "series")]
    fitting = [name for name in names if run.startswith(f"{_slug(name)}-")]
    return max(fitting, key=len, default="")


def _slug(series: str) -> str:
    """As sweeps name the folders of their runs."""
    return re.sub(r"[^a-z0-9.]+", "-", series.lower()).strip("-")


def _table(plan: dict[str, Any], name: str) -> dict[str, Any]:
    found = plan.get(name, {})
    return found if isinstance(found, dict) else {}
