"""A run that starts from a trained one."""

import pytest
import torch

from cce.data import PreparedData
from cce.embeddings import create_embedding
from cce.training import Trainer
from cce.training.checkpoint import (
    checkpoint_path,
    list_checkpoints,
    open_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from cce.training.model import load_model, make_model
from cce.training.saving import start_from
from cce.training.session import count_ids
from helpers.final_form import finalize_table
from helpers.runs import CCE, tiny_config, tiny_data, tiny_resolved


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Full tables, trained: the folder of the run, and its best model."""
    out = tmp_path_factory.mktemp("trained") / "full"
    record = Trainer(tiny_config(data, method="full", cap=None), out).run()
    best = min(record.curve, key=lambda scores: scores["bce"])["step"]
    checkpoint, damage = open_checkpoint(out, best=True)
    assert checkpoint.path == checkpoint_path(out / "checkpoints", best)
    assert damage == []
    return out, load_model(checkpoint)[1], record


def started(data, run, **changes):
    config = tiny_resolved(data, **changes)
    schema = PreparedData.open(data).schema
    model = make_model(vars(config), schema)
    start_from(model, run, schema, name=config.model, seed=config.seed)
    return model


def same(model, other, name):
    return torch.equal(model.state_dict()[name], other.state_dict()[name])


@pytest.mark.slow
def test_everything_but_the_tables_is_copied(trained, data):
    model = started(data, trained[0], method="pq")
    assert all(same(model, trained[1], name) for name in model.state_dict() if ".tables." not in name)


@pytest.mark.slow
def test_a_small_table_stays_full_and_a_large_one_is_quantised(trained, data):
    model = started(data, trained[0], method="pq")
    assert same(model, trained[1], "tables.tables.c2.codebook")  # it fits under the cap
    weight = trained[1].tables.tables["c0"].to_dense().detach()
    by_hand = create_embedding("pq", 121, 8, num_params=320)
    by_hand.fit_to(weight, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.tables.tables["c0"].to_dense(), by_hand.to_dense())
    random = torch.randn_like(weight) * weight.std()
    assert (by_hand.to_dense() - weight).norm() < 0.7 * (random - weight).norm()


def test_tables_of_the_same_kind_are_copied_to_the_bit(trained, data):
    model = started(data, trained[0], method="full", cap=None, seed=5)
    assert all(same(model, trained[1], name) for name in model.state_dict())


@pytest.mark.slow
def test_pointers_of_tables_of_the_same_kind_are_copied_too(data, tmp_path):
    Trainer(tiny_config(data, preset="paper"), tmp_path).run()
    best = load_model(open_checkpoint(tmp_path, best=True)[0])[1].tables.tables["c0"]
    table = started(data, tmp_path, seed=5, preset="paper").tables.tables["c0"]
    ids = torch.arange(121)
    assert torch.equal(table.assignments(ids), best.assignments(ids))
    assert torch.equal(table.to_dense(), best.to_dense())


def test_it_is_the_best_checkpoint_and_not_the_newest(trained, data, tmp_path):
    """A run whose newest checkpoint says that the one before it was the best."""
    older, newest = (read_checkpoint(path) for path in list_checkpoints(trained[0] / "checkpoints")[-2:])
    assert older.step < newest.step
    newest.state["stopping"]["best_step"] = older.step
    for each in (older, newest):
        write_checkpoint(tmp_path / "checkpoints", each.step, each.model, each.state)
    model = started(data, tmp_path, method="full", cap=None)
    assert torch.equal(model.state_dict()["top.0.weight"], older.model["top.0.weight"])
    assert not torch.equal(older.model["top.0.weight"], newest.model["top.0.weight"])


@pytest.mark.slow
def test_no_epochs_only_evaluate(trained, data, tmp_path):
    """The paper's post-training baseline: nothing is trained on."""
    config = tiny_config(data, method="pq", start_from=str(trained[0]), epochs=0)
    record = Trainer(config, tmp_path / "pq").run()
    assert record.curve == []
    assert set(record.seconds_by_part) == {"save", "test"}
    assert record.samples_per_second == 0
    copied = tiny_config(data, method="full", cap=None, start_from=str(trained[0]), epochs=0)
    assert Trainer(copied, tmp_path / "full").run().scores == trained[2].scores


@pytest.mark.slow
def test_fine_tuning_goes_on_from_there_and_resumes_to_the_bit(trained, data, tmp_path):
    config = tiny_config(data, method="pq", start_from=str(trained[0]), epochs=1)
    whole = Trainer(config, tmp_path / "whole").run()
    Trainer(config, tmp_path / "cut").close()  # killed before its first checkpoint: the folder has a configuration only
    resumed = Trainer.resume(tmp_path / "cut").run()
    assert resumed.curve == whole.curve
    fresh = Trainer(tiny_config(data, method="pq", epochs=1), tmp_path / "fresh").run()
    assert whole.curve[0]["bce"] < fresh.curve[0]["bce"]


@pytest.mark.slow
def test_a_run_of_cce_starts_nearer_to_ids_that_occur_often(trained, data, tmp_path):
    """Compression after training: rows of all ids, and codebooks that count ids by their training rows."""
    trainer = Trainer(tiny_config(data, **CCE, start_from=str(trained[0]), epochs=0), tmp_path)
    trainer.run()
    found, weight = trainer.model.tables.tables["c0"], trained[1].tables.tables["c0"].to_dense().detach()
    assert found.is_final
    counts = count_ids(PreparedData.open(data), "c0")
    plain = started(data, trained[0], **CCE).tables.tables["c0"]
    finalize_table(plain, generator=torch.Generator().manual_seed(0))
    errors = [((t.to_dense() - weight).square().sum(1) * counts).sum() for t in (found, plain)]
    assert errors[0] < errors[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embedding_dim": 4}, "must name a run with a table 'tables.tables.c0' of embedding_dim=4"),
        ({"model_options": {"bottom": [8, 8], "top": [8]}}, "start_from must name a run of the same model, but"),
    ],
)
def test_what_does_not_fit_is_rejected(trained, data, changes, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        started(data, trained[0], **changes)


def test_another_data_set_and_no_run_are_rejected(trained, data, tmp_path):
    other = tiny_data(tmp_path / "other", vocabulary_sizes=(50, 60, 30))
    with pytest.raises(ValueError, match=r"start_from must name a run on the same data set, got .* had other columns"):
        started(other, trained[0])
    with pytest.raises(FileNotFoundError, match="must be a run or a checkpoint, got no whole checkpoint there"):
        started(data, tmp_path)
