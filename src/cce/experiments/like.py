"""A study on the ground of another recipe: `cce sweep recipes/studies/columns.toml --like recipes/kaggle.toml`.

Series, seeds and everything about tables are the study's. Data, model, optimizer, epochs and caps are the other's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cce.experiments.recipe import WHEN

if TYPE_CHECKING:
    from cce.experiments.recipe import Recipe

OF_TABLES = (  # options of [train] that a study keeps: they are what studies are about
    *("preset", "method_options", "learned_min_count", "num_learned", "budget_rule", "start_scale"),
    *("codebook_dtype", *WHEN, "cluster_policy", "refits"),
)


def take_ground(recipe: Recipe, other: Recipe) -> Recipe:
    """`recipe` with the data, [train] and caps of `other`, but for the options about tables that it sets itself."""
    own = {name: value for name, value in recipe.train.items() if name in OF_TABLES}
    theirs = dict(other.train)
    if any(name in own for name in WHEN):  # there is one way to say when
        theirs = {name: value for name, value in theirs.items() if name not in WHEN}
    return replace(
        recipe,
        name=f"{recipe.name}-{other.name}",
        data=other.data,
        train=theirs | own,
        caps=other.caps or recipe.caps,
        plugins=tuple(dict.fromkeys((*recipe.plugins, *other.plugins))),
        expected={},  # was of the study's own ground
    )
