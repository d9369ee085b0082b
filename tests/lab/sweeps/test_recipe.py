"""Recipes: what is read, what is rejected, and that every recipe of the repository gives runs."""

import tomllib
from pathlib import Path

import pytest
import torch

from cce.collection import EmbeddingCollection
from cce.data import PreparedData
from cce.data.sources.reczoo import COLUMNS
from cce.models import create_model
from cce.plugins import load_plugins
from cce.schema import Batch, Feature, Schema
from cce_lab.sweeps.recipe import make_recipe, read_recipe
from cce_lab.sweeps.running import Sweep
from cce_lab.sweeps.runs import list_runs
from helpers.runs import tiny_data

ROOT = Path(__file__).resolve().parents[3]
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))
TEXT = """
about = "a test"

[data]
prepare = "synthetic --rows 1000"

[train]
epochs = 2

[sweep]
methods = ["full", "cce"]
caps = [320, 640]
seeds = [0, 1]

[series."PQ, tuned"]
method = "pq"
start_from = "full"
epochs = 1
caps = [160]

[expected]
source = "Table 1"
full_bce = 0.45
compression = { cce = 8500, "PQ, tuned" = [12.5, 20] }
"""


def changed(**parts):
    return tomllib.loads(TEXT) | parts


def test_a_file_is_read(tmp_path):
    (tmp_path / "mine.toml").write_text(TEXT)
    recipe = read_recipe(tmp_path / "mine.toml")
    assert (recipe.name, recipe.about) == ("mine", "a test")
    assert recipe.data == {"name": "mine", "prepare": "synthetic --rows 1000"}
    assert (recipe.caps, recipe.seeds, recipe.train) == ((320, 640), (0, 1), {"epochs": 2})
    assert list(recipe.all_series()) == ["full", "cce", "PQ, tuned"]
    assert recipe.all_series()["cce"] == {"method": "cce"}
    assert recipe.expected["compression"] == {"cce": 8500, "PQ, tuned": [12.5, 20]}


SERIES = {"method": "pq", "caps": [1]}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"swep": {}}, "the recipe has a part that is not known, 'swep': did you mean 'sweep'?"),
        ({"zzz": 1}, "'zzz': there are about, plugins, data, train, sweep, series, tune, expected."),
        ({"data": {"path": "x"}}, r"the recipe \[data\] has a part that is not known, 'path': there are name, prep"),
        ({"sweep": {"cap": [1]}}, r"the recipe \[sweep\] has a part that is not known, 'cap': did you mean 'caps'?"),
        ({"train": {"epoch": 1}}, r"\[train\] has an option that is not known, 'epoch': did you mean 'epochs'?"),
        ({"train": {"seed": 1}}, r"\[train\] must leave seed to the sweep and its series, got seed = 1."),
        ({"train": {"method": "cce"}}, r"\[train\] must leave method to the sweep and its series, got method = 'cce'."),
        ({"about": 3}, r"the recipe \[about\] must be text, got 3."),
        ({"train": 3}, r"the recipe \[train\] must be a table, got 3."),
        ({"sweep": {}, "series": {}}, r"must name methods in \[sweep\], or have a \[series\], got none."),
        ({"sweep": {"methods": ["cce"]}}, r"must have caps for cce, in \[sweep\] or in its \[series\], got none."),
        ({"sweep": {"methods": "cce"}}, r"the recipe \[sweep\] methods must be a list, got 'cce'."),
        (
            {"sweep": {"methods": ["cce"], "caps": [1.5]}},
            r"\[sweep\] caps must be a list of whole numbers, got \[1.5\].",
        ),
        ({"sweep": {"methods": ["cce"], "caps": [0]}}, r"caps must lie in \[1, 2\*\*63\), got 0."),
        ({"sweep": {"methods": ["full"], "seeds": [-1]}}, r"seeds must lie in \[0, 2\*\*63\), got -1."),
        (
            {"sweep": {"methods": ["full"], "seeds": [3, 3]}},
            r"\[sweep\] seeds must name each value once, got \[3, 3\].",
        ),
        ({"series": {"cce": SERIES}}, "must give every series a distinct name, got 'cce' twice."),
        ({"series": {"a b": SERIES, "A-B": SERIES}}, "must give every series a distinct name, got 'A-B' twice."),
        ({"series": {"x": {"caps": [1]}}}, r'the recipe \[series."x"\] must name its method.'),
        ({"series": {"x": SERIES | {"nbytes": 9}}}, r"must have caps or one of num_params, .*, got both"),
        ({"series": {"x": SERIES | {"seed": 1}}}, r'\[series."x"\] must leave seed to the sweep'),
        ({"series": {"x": SERIES | {"start": "full"}}}, r'\[series."x"\] has an option that is not known, \'start\''),
        (
            {"series": {"x": SERIES | {"start_from": "ful"}}},
            "must start from a series of the recipe that starts from n",
        ),
        (
            {"series": {"x": SERIES | {"start_from": "full"}, "y": SERIES | {"start_from": "x"}}},
            "must start from a series of the recipe that starts from none, got 'x'.",
        ),
        ({"expected": {"sourse": "x"}}, r"\[expected\] has a part that is not known, 'sourse': did you mean 'source'?"),
        (
            {"expected": {"bce": {"ccee": 1}}},
            r"\[expected\] bce has a part that is not known, 'ccee': did you mean 'cce'?",
        ),
        ({"expected": {"acu": {"cce": 0.4}}}, r"\[expected\] has a part that is not known, 'acu': did you mean 'auc'?"),
        ({"expected": {"ece": {"ccee": 1}}}, r"\[expected\] ece has a part that is not known, 'ccee'"),
        ({"expected": {"bce": {"cce": "0.4"}}}, "bce of cce must be a number, or from and to, got '0.4'."),
    ],
)
def test_what_is_wrong_is_rejected_with_a_hint(parts, message):
    series = {"series": {}} if "sweep" in parts else {}
    with pytest.raises((ValueError, TypeError), match=message):
        make_recipe("test", changed(**({"expected": {}} | series | parts)), where="the recipe")


# -- the recipes of the repository -------------------------------------------------------------------------------------

VOCABULARIES = {"ad": 300_001, "user": 20_001, "site": 501, "hour": 25}


def test_the_recipes_that_were_promised_are_there():
    names = {path.relative_to(ROOT / "recipes").as_posix().removesuffix(".toml") for path in RECIPES}
    studies = ("schedule-number", "schedule-strategies", "didnt-work", "niter", "columns", "helpers")
    studies += ("samples-per-centroid", "dhe", "settle", "drift", "low-rank")
    assert {f"studies/{name}" for name in studies} <= names
    assert {"kaggle", "kaggle-1-epoch", "terabyte-1-epoch", "quick", "kaggle-small"} <= names
    assert len(RECIPES) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_gives_runs(path):
    recipe = read_recipe(path)
    assert recipe.about
    small = {"user": 6_000, "item": 3_700}  # tuned recipes have budgets in bytes for sets of their own size
    runs = list_runs(recipe, Path("data"), small if path.parent.name == "tuned" else VOCABULARIES)
    assert {run.series for run in runs} == set(recipe.all_series())
    assert len({run.name for run in runs}) == len(runs) >= len(recipe.seeds) * len(recipe.all_series())
    if recipe.expected:
        paper = "Zhu et al., 2021" if path.parent.name == "reczoo" else "Tsang and Ahle (2023)"
        assert paper in recipe.expected["source"]


@pytest.mark.slow
def test_the_models_of_the_public_benchmark_can_be_made_of_its_columns():
    recipe = read_recipe(ROOT / "recipes" / "reczoo" / "criteo_x1.toml")
    assert recipe.data["prepare"] == "reczoo Criteo_x1"
    schema = Schema(tuple(Feature(feature, 9) for feature in COLUMNS.categorical), COLUMNS.dense)
    for series, options in recipe.all_series().items():
        tables = EmbeddingCollection(schema.vocabulary_sizes, recipe.train["embedding_dim"], method="full", seed=0)
        model = create_model(options["model"], schema, tables, **options["model_options"])
        batch = Batch(
            torch.rand(2, len(schema.dense)), torch.ones(2, len(schema.features), dtype=torch.int64), torch.ones(2)
        )
        assert model(batch).shape == (2,), series
    figures = {score: len(recipe.expected[score]) for score in ("auc", "bce")}
    assert figures == dict.fromkeys(("auc", "bce"), 3)


def test_the_papers_recipes_have_its_setup_and_its_numbers():
    kaggle, one, tera = (read_recipe(ROOT / "recipes" / f"{name}.toml") for name in PAPER)
    for recipe in (kaggle, one, tera):
        assert recipe.train["preset"] == "paper"
        assert (recipe.train["optimizer"], recipe.train["lr"], len(recipe.caps)) == ("sgd", 0.1, 9)
        assert recipe.series["pq"] == {"method": "pq", "start_from": "full", "epochs": 0}
        assert recipe.data["prepare"].endswith("--vocabulary-from all")
        assert {"robe", "hash-embedding", "tt", "dhe"} <= set(recipe.methods)
    assert [recipe.expected["compression"]["cce-paper"] for recipe in (kaggle, one, tera)] == [8500, 212, 101]
    assert [recipe.train["epochs"] for recipe in (kaggle, one, tera)] == [10, 1, 1]
    assert [recipe.train["validations_per_epoch"] for recipe in (kaggle, one, tera)] == [6, 6, 1]
    assert (kaggle.seeds, tera.seeds, kaggle.train["batch_size"]) == ((0, 1, 2), (0,), 128)


PAPER = ("kaggle", "kaggle-1-epoch", "terabyte-1-epoch")


@pytest.mark.slow
def test_every_idea_that_did_not_work_can_be_run(tmp_path):
    """The recipe as it is, on a tiny data set."""
    values = tomllib.loads((ROOT / "recipes" / "studies" / "didnt-work.toml").read_text())
    values["sweep"]["seeds"] = [0]
    values["train"] |= {"batch_size": 64, "epochs": 2, "model_options": {"bottom": [8], "top": [8]}}
    values["series"]["seeded with PQ"]["epochs"] = 1
    data = tiny_data(tmp_path / "data", vocabulary_sizes=(900, 300))
    load_plugins(values["plugins"])
    recipe = make_recipe("didnt-work", values)
    runs = list_runs(recipe, data, PreparedData.open(data).schema.vocabulary_sizes)
    outcome = Sweep(runs, tmp_path / "out").run()
    assert outcome.failures == {}
    records = {record.series: record for record in outcome.records}
    assert set(records) == set(recipe.all_series())
    events = {series: len({event["step"] for event in record.events}) for series, record in records.items()}
    assert (events["cce-paper"], events["continuous clustering"], events["after an epoch, once"]) == (1, 19, 1)
    assert events["seeded with PQ"] == events["full"] == 0
    assert (
        len({record.scores["bce"] for record in records.values()}) == len(records) - 1
    )  # no two variants are the same, but:
    assert (
        records["cce-paper"].scores == records["after an epoch, once"].scores
    )  # in two epochs there is no second clustering
