"""A recipe in, run records out: its runs, the tuning of their options, the sweep of them all.

Names are loaded when they are first used: a recipe can be read without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cce.lazy import lazy_names

if TYPE_CHECKING:
    from cce_lab.sweeps.recipe import Recipe, find_recipe, list_recipes, read_recipe
    from cce_lab.sweeps.running import Experiment, Sweep, SweepResult, sweep
    from cce_lab.sweeps.runs import Run, list_runs

__all__ = [
    "Experiment",
    "Recipe",
    "Run",
    "Sweep",
    "SweepResult",
    "find_recipe",
    "list_recipes",
    "list_runs",
    "read_recipe",
    "sweep",
]

__getattr__, __dir__ = lazy_names(__name__)
