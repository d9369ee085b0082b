"""Runs and their baked data sets: the scores of ids to the bit, and training that goes on without pointers."""

import json
import random
import shutil

import pytest
import torch

import cce
from cce.data import PreparedData, checksum
from cce.runs import bake_data, calibrate, pack_run
from helpers.raw_runs import raw_rows, train_on_raw, write_rows
from helpers.runs import tiny_config, tiny_data

pytestmark = pytest.mark.slow


def rows_with_many_tags():
    draw = random.Random(1)
    return [row | {"tags": "|".join(f"t{draw.randrange(90)}" for _ in range(draw.randrange(4)))} for row in raw_rows()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on raw rows, all of whose features have pointers, one of them in bags; and its baked data set."""
    folder = tmp_path_factory.mktemp("baking")
    loaded = cce.load_run(train_on_raw(folder, "--weight", "weight", rows=rows_with_many_tags(), learned_min_count=4))
    bake_data(loaded, folder / "baked")
    return loaded, folder


def continued(folder, out, **changes):
    options = {"cluster_every": None, "cluster_times": None, "epochs": 1, "start_from": str(folder / "run")}
    return cce.Trainer(tiny_config(folder / "baked", **(options | changes)), out)


def test_scores_and_predictions_of_baked_rows_are_those_of_ids(run):
    loaded, folder = run
    pointers = [feature.pointers for feature in PreparedData.open(folder / "baked").schema.features]
    assert all(pointers)
    assert loaded.evaluate(folder / "baked") == loaded.evaluate(folder / "data")
    by_ids = loaded.predict(folder / "data")
    assert (loaded.predict(folder / "baked") == by_ids).all()
    assert (loaded.predict(write_rows(folder / "test.csv", rows_with_many_tags()[-60:])) == by_ids).all()
    assert len(loaded.predict(folder / "baked", split="validation")) == 60


def test_the_manifest_has_the_checksum_of_the_run(run):
    loaded, folder = run
    manifest = json.loads((folder / "baked" / "manifest.json").read_text())
    about = manifest["run"]
    assert (about["step"], about["sha256"]) == (loaded.step, checksum(loaded.path / "model.safetensors"))
    assert (about["options"]["method"], about["options"]["cap"]) == ("cce", 320)
    pack_run(folder / "run", folder / "one.ccez")
    assert bake_data(cce.load_run(folder / "one.ccez"), folder / "of-pack")["run"] == manifest["run"]


def test_codebooks_and_network_train_on_and_the_run_needs_no_pointers(run, tmp_path):
    loaded, folder = run
    record = continued(folder, tmp_path / "more").run()
    assert not record.events
    assert sum(table.pointer_nbytes for table in record.tables) == 0
    assert record.num_params == loaded.model.tables.num_params
    shutil.copytree(folder / "baked", tmp_path / "baked")  # the run that it started from is not needed
    more = cce.load_run(tmp_path / "more", data=tmp_path / "baked")
    assert not [name for name in more.model.state_dict() if "pointers" in name or "seeds" in name]
    found = more.evaluate(tmp_path / "baked")
    assert found.scores == record.scores != loaded.scores
    assert calibrate(more, tmp_path / "baked").num_rows == found.num_rows
    again = continued(folder, tmp_path / "again", start_from=str(tmp_path / "more"), epochs=0).run()
    assert again.scores == record.scores


def test_a_stopped_run_on_baked_rows_goes_on_to_the_bit(run, tmp_path):
    _, folder = run
    whole = continued(folder, tmp_path / "whole", max_steps=6, checkpoint_every=3)
    whole.run()
    continued(folder, tmp_path / "half", max_steps=3, checkpoint_every=3).run()
    resumed = cce.Trainer.resume(tmp_path / "half", max_steps=6)
    resumed.run()
    for name, weight in whole.session.model.state_dict().items():
        assert torch.equal(weight, resumed.session.model.state_dict()[name])


def test_new_rows_with_the_same_ids_can_be_baked(run, tmp_path):
    loaded, folder = run
    write_rows(tmp_path / "new.csv", rows_with_many_tags()[:30])
    words = ["--reuse-vocabulary", str(folder / "data"), str(tmp_path / "new.csv"), str(tmp_path / "new")]
    assert cce.cli.main(["prepare", *words, "--json"]) == 0
    bake_data(loaded, tmp_path / "baked", data=tmp_path / "new")
    assert loaded.evaluate(tmp_path / "baked") == loaded.evaluate(tmp_path / "new")


def test_what_does_not_fit_together_is_rejected(run, tmp_path):
    loaded, folder = run
    other = tiny_data(tmp_path / "other")
    with pytest.raises(
        ValueError, match=r"^data must have the columns and ids that the run was trained on, but .*other"
    ):
        bake_data(loaded, tmp_path / "baked", data=other)
    hashed = tiny_config(other, method="hash", cluster_every=None, cluster_times=None, max_steps=2)
    cce.Trainer(hashed, tmp_path / "hash").run()
    with pytest.raises(ValueError, match=r"^table of feature 'c0' must be full or learn pointers.* got method 'hash'"):
        bake_data(cce.load_run(tmp_path / "hash"), tmp_path / "baked")
    continued(folder, tmp_path / "more", epochs=0).run()
    more = cce.load_run(tmp_path / "more")
    with pytest.raises(ValueError, match=r"^run must take ids to bake its data, got .*more.*, which takes pointers"):
        bake_data(more, tmp_path / "baked")
    with pytest.raises(ValueError, match=r"^data must hold pointers, as the model takes them, but .*data holds ids"):
        more.evaluate(folder / "data")
    with pytest.raises(ValueError, match=r"takes pointers, which raw rows have none of: use the run it started from"):
        more.predict(folder / "raw.csv")
    with pytest.raises(ValueError, match=r"^group_by must name a feature that has ids, got 'user', whose rows hold"):
        loaded.evaluate(folder / "baked", metrics=["ndcg@3"], group_by="user")


def test_data_that_another_run_was_baked_with_is_rejected(run, tmp_path):
    _, folder = run
    other = tiny_config(folder / "data", epochs=1, max_steps=8, learned_min_count=4, seed=1)
    cce.Trainer(other, tmp_path / "later").run()
    message = r"^data must be baked with the pointers of the run, got others for feature 'user': bake it again\.$"
    with pytest.raises(ValueError, match=message):
        cce.load_run(tmp_path / "later").evaluate(folder / "baked")
    with pytest.raises(ValueError, match=message):
        continued(folder, tmp_path / "more", start_from=str(tmp_path / "later"))
    with pytest.raises(ValueError, match=r"^start_from must name a run on the same data set"):
        cce.Trainer(tiny_config(folder / "data", start_from=str(_baked_run(folder, tmp_path))), tmp_path / "ids")


def _baked_run(folder, tmp_path):
    continued(folder, tmp_path / "baked-run", epochs=0).run()
    return tmp_path / "baked-run"
