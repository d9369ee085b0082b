"""A recipe: which runs make up an experiment, and what its paper found. TOML in, plain values out; no torch here.

docs/sweeps.md shows one, part by part.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from cce.budget import FULL_SIZED, MEASURES, SIZED_LATER
from cce.checks import check_known, check_number, check_range
from cce.evaluation import METRICS, describe_metric
from cce.plugins import load_plugins
from cce.training import check_names

# in a wheel beside the code, in a checkout beside `src`
HOMES = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes")
SHAPE: dict[str, Any] = {  # of a recipe: what each part holds; a list is of distinct values
    "about": str,
    "plugins": [str],
    "data": {"name": str, "prepare": str},
    "train": dict,
    "sweep": {"methods": [str], "caps": [int], "seeds": [int]},
    "series": dict,
    "tune": {"lr": list, "weight_decay": list, "start_scale": list, "caps": list, "series": dict},
    "expected": dict,
}
WORDS = {str: "text", int: "whole numbers", dict: "a table", list: "a list"}
AXES = ("lr", "weight_decay", "start_scale")  # that [tune] may list
OF_EXPECTED = ("source", "compression", "largest")  # besides METRIC and full_METRIC
SET_BY_SWEEP = ("data", *MEASURES, "seed", "plugins")
SET_BY_SERIES = ("method", "start_from")
# options of [train] that a study keeps: they are what studies are about
OF_TABLES = ("preset", "method_options", "min_count", "start_scale", "cluster_at", "refits")
CHOSEN_LATER = ("nbytes", "bits", "tolerance")  # of methods whose size is chosen after training: one may be a list
TOTALS = (*(measure for measure in MEASURES if measure != "cap"), "bits", "tolerance")  # a series' own, for caps


@dataclass(frozen=True)
class Recipe:
    """What was read, and checked."""

    name: str
    about: str = ""
    plugins: tuple[str, ...] = ()  # as `load_plugins` has them
    data: dict[str, str] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    caps: tuple[int, ...] = ()
    seeds: tuple[int, ...] = (0,)
    series: dict[str, dict[str, Any]] = field(default_factory=dict)
    tune: dict[str, Any] | None = None
    expected: dict[str, Any] = field(default_factory=dict)

    def options_of(self, series: str) -> dict[str, Any]:
        """Those of [train] and its own."""
        left_out = ("caps", "start_from", *self.sizes_of(series)[0])
        return self.train | {name: value for name, value in self.all_series()[series].items() if name not in left_out}

    def sizes_of(self, series: str) -> tuple[dict[str, float], ...]:
        """The sizes at which the tables of a series are finalized, where it lists them; one that says nothing else."""
        own = self.all_series()[series]
        listed = [[{name: size} for size in own[name]] for name in CHOSEN_LATER if isinstance(own.get(name), list)]
        return tuple(listed[0]) if listed else ({},)

    def caps_of(self, series: str) -> tuple[int | None, ...]:
        """The budgets of a series; None for tables that have one size, such as the full one."""
        own = self.all_series()[series]
        return (None,) if own["method"] in FULL_SIZED or has_total(own) else tuple(own.get("caps", self.caps))

    def all_series(self) -> dict[str, dict[str, Any]]:
        """Every line of the plot, with the options that are its own."""
        return {method: {"method": method} for method in self.methods} | self.series


def list_recipes() -> dict[str, Path]:
    """Names, such as `quick` or `studies/columns`, and their files."""
    home = next((home for home in HOMES if home.is_dir()), HOMES[0])
    return {path.relative_to(home).with_suffix("").as_posix(): path for path in sorted(home.rglob("*.toml"))}


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe: a path, or a name of `list_recipes`."""
    path, shipped = Path(name), list_recipes()
    if path.is_file():
        return path
    if str(name) in shipped:
        return shipped[str(name)]
    near = difflib.get_close_matches(path.name.removesuffix(".toml"), shipped, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else "`cce recipes` shows those that come with the package."
    raise FileNotFoundError(f"recipe must name a file that is there, or one of ours, got {str(path)!r}: {hint}")


def read_recipe(name: str | Path) -> Recipe:
    """The recipe of a TOML file, or of a name of `list_recipes`; its names are checked."""
    path = find_recipe(name)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} must be TOML: {error}.") from error
    check_shape(values, SHAPE, str(path))
    # files beside the recipe, or modules; they may register what it names
    plugins = (path.parent / each if each.endswith(".py") else each for each in values.get("plugins", []))
    return make_recipe(path.stem, values | {"plugins": load_plugins(plugins)}, where=str(path))


def on_base(recipe: Recipe, other: Recipe) -> Recipe:
    """`recipe` with the data, [train] and caps of `other`, except the options about tables that it sets itself."""
    own = {name: value for name, value in recipe.train.items() if name in OF_TABLES}
    return replace(
        recipe,
        name=f"{recipe.name}-{other.name}",
        data=other.data,
        train=other.train | own,
        caps=other.caps or recipe.caps,
        plugins=tuple(dict.fromkeys((*recipe.plugins, *other.plugins))),
        expected={},  # were of the study's own data
    )


def make_recipe(name: str, values: dict[str, Any], *, where: str = "the recipe") -> Recipe:
    """The recipe of these values; what is not known is rejected."""
    check_shape(values, SHAPE, where)
    train, sweep = values.get("train", {}), values.get("sweep", {})
    _check_options(train, (*SET_BY_SWEEP, *SET_BY_SERIES), f"{where} [train]")
    for part, least in (("seeds", 0), ("caps", 1)):
        for each in sweep.get(part, ()):
            check_range(f"{where} [sweep] {part}", each, least, 2**63)
    recipe = Recipe(
        name=name,
        about=values.get("about", ""),
        data={"name": name} | values.get("data", {}),
        plugins=tuple(values.get("plugins", ())),
        train=train,
        methods=tuple(sweep.get("methods", ())),
        caps=tuple(sweep.get("caps", ())),
        seeds=tuple(sweep.get("seeds", (0,))),
        series=values.get("series", {}),
        tune=values.get("tune"),
        expected=values.get("expected", {}),
    )
    _check_series(recipe, where)
    _check_tune(recipe, f"{where} [tune]")
    _check_expected(recipe, f"{where} [expected]")
    return recipe


def check_shape(value: Any, shape: Any, where: str) -> None:
    """Reject a value that is not what `shape` says: a type, a list of one, or a table of names and shapes."""
    kind = type(shape) if isinstance(shape, dict | list) else shape
    if type(value) is not kind:
        raise TypeError(f"{where} must be {WORDS[kind]}, got {value!r}.")
    if isinstance(shape, list):
        if any(type(each) is not shape[0] for each in value):
            raise TypeError(f"{where} must be a list of {WORDS[shape[0]]}, got {value!r}.")
        if len(set(value)) < len(value):
            raise ValueError(f"{where} must name each value once, got {value!r}.")
    elif isinstance(shape, dict) and isinstance(value, dict):
        check_parts(value, shape, where)
        for key, each in value.items():
            check_shape(each, shape[key], f"{where} {key}" if "[" in where else f"{where} [{key}]")


def check_parts(names: Iterable[str], known: Iterable[str], where: str) -> None:
    for name in names:
        check_known(f"{where} has a part that is not known, {name!r}", name, known)


def _check_options(options: dict[str, Any], not_here: tuple[str, ...], where: str) -> None:
    check_names((name for name in options if name != "caps"), where)
    for name in not_here:
        if name in options:
            raise ValueError(f"{where} must leave {name} to the sweep and its series, got {name} = {options[name]!r}.")


def _check_series(recipe: Recipe, where: str) -> None:
    every = recipe.all_series()
    if not every:
        raise ValueError(f"{where} must name methods in [sweep], or have a [series], got none.")
    names: dict[str, str] = {}
    for name in chain(recipe.methods, recipe.series):
        if names.setdefault(file_name(name), name) != name or (name in recipe.methods and name in recipe.series):
            raise ValueError(f"{where} must give every series a distinct name, got {name!r} twice.")
    for name, options in recipe.series.items():
        here = f'{where} [series."{name}"]'
        check_shape(options, dict, here)
        _check_options(options, tuple(each for each in SET_BY_SWEEP if each not in TOTALS), here)
        check_shape(options.get("caps", []), [int], f"{here} caps")
        check_range(f"{here} caps", min(options.get("caps", [1]), default=1), 1, 2**63)
        if "caps" in options and has_total(options):
            raise ValueError(f"{here} must have caps or one of {', '.join(TOTALS)}, got both.")
        if "method" not in options:
            raise ValueError(f"{here} must name its method.")
        _check_sizes(options, here)
        source = options.get("start_from")
        if source is not None and (source not in every or "start_from" in every[source]):
            raise ValueError(f"{here} must start from a series of the recipe that starts from none, got {source!r}.")
    for name, options in every.items():
        if options["method"] not in FULL_SIZED and not has_total(options) and not options.get("caps", recipe.caps):
            raise ValueError(f"{where} must have caps for {name}, in [sweep] or in its [series], got none.")


def _check_sizes(options: dict[str, Any], where: str) -> None:
    """Reject lists of sizes that cannot come from one training."""
    listed = [name for name in CHOSEN_LATER if isinstance(options.get(name), list)]
    if len(listed) > 1:
        raise ValueError(f"{where} must list one of {', '.join(CHOSEN_LATER)}, got {' and '.join(listed)}.")
    for name in listed:
        sizes, method = options[name], options["method"]
        if method not in SIZED_LATER:
            known = ", ".join(SIZED_LATER)
            raise ValueError(f"{where} may list {name} for methods sized after training ({known}), got {method!r}.")
        for size in sizes:
            check_number(f"{where} {name}", size)
        if len(set(sizes)) < max(1, len(sizes)):
            raise ValueError(f"{where} must list distinct {name}, at least one, got {sizes!r}.")


def _check_tune(recipe: Recipe, where: str) -> None:
    """Reject a series or a budget that the sweep does not have, and what is no list; values are checked in use."""
    every, tune = recipe.all_series(), recipe.tune or {}
    caps = sorted({cap for name in every for cap in recipe.caps_of(name) if cap is not None})
    shape = {name: kind for name, kind in SHAPE["tune"].items() if name != "series"}
    check_shape(tune.get("series", {}), dict.fromkeys(every, shape), f"{where} series")
    for own in (tune, *tune.get("series", {}).values()):
        for name, values in own.items():
            if not values and name != "series":
                raise ValueError(f"{where} {name} must be a list of at least one value, got {values!r}.")
        if wrong := [cap for cap in own.get("caps", ()) if cap not in caps]:
            known = ", ".join(map(str, caps))
            raise ValueError(f"{where} caps must be among those of the sweep ({known}), got {wrong[0]}.")


def _check_expected(recipe: Recipe, where: str) -> None:
    """Reject scores that no metric has, and what is not a number or two for each series."""
    scores = [key for key in recipe.expected if describe_metric(key.removeprefix("full_")).home]
    check_parts(recipe.expected, (*OF_EXPECTED, *METRICS, *scores), where)
    for key, found in recipe.expected.items():
        if key == "source" or key.startswith("full_"):
            continue
        check_shape(found, dict, f"{where} {key}")
        check_parts(found, recipe.all_series(), f"{where} {key}")
        for name, value in found.items():
            numbers = value if isinstance(value, list) else [value]
            if len(numbers) not in (1, 2) or not all(type(number) in (int, float) for number in numbers):
                raise ValueError(f"{where} {key} of {name} must be a number, or from and to, got {value!r}.")


def has_total(options: dict[str, Any]) -> bool:
    """Whether a series has a budget of its own for all tables together, and so one run for each seed."""
    return any(name in options for name in TOTALS)


def file_name(series: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", series.lower()).strip("-")
