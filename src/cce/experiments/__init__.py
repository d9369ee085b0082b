"""A recipe in, run records out: its runs and the sweep of them all; and the demonstration.

Names are loaded when they are first used: a recipe can be read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cce.experiments.choices import Choice, Choices, data_checksum, tuned_series
    from cce.experiments.demo import DemoConfig, demo_table, run_demo, write_report
    from cce.experiments.like import take_ground
    from cce.experiments.recipe import Recipe, read_recipe
    from cce.experiments.runs import Run, list_runs
    from cce.experiments.shipped import find_recipe, list_recipes
    from cce.experiments.sweep import Sweep
    from cce.experiments.tuning import Tuning

_HOMES = {
    "choices": ("Choice", "Choices", "data_checksum", "tuned_series"),
    "demo": ("DemoConfig", "demo_table", "run_demo", "write_report"),
    "like": ("take_ground",),
    "recipe": ("Recipe", "read_recipe"),
    "runs": ("Run", "list_runs"),
    "shipped": ("find_recipe", "list_recipes"),
    "sweep": ("Sweep",),
    "tuning": ("Tuning",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Choice",
    "Choices",
    "DemoConfig",
    "Recipe",
    "Run",
    "Sweep",
    "Tuning",
    "data_checksum",
    "demo_table",
    "find_recipe",
    "list_recipes",
    "list_runs",
    "read_recipe",
    "run_demo",
    "take_ground",
    "tuned_series",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'cce.experiments' has no attribute {name!r}")
    return getattr(import_module(f"cce.experiments.{_HOME_OF[name]}"), name)
