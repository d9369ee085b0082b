from dataclasses import replace

import pytest
import torch

from cce.data import PreparedData
from cce.embeddings import ClusteredEmbedding
from cce.training import Trainer
from cce.training.frequent_ids import count_ids, num_frequent, with_num_learned
from cce.training.inspection import evaluate_checkpoint
from cce.training.options import make_config, read_toml
from helpers.runs import tiny_config


def counted_by_hand(data):
    batch = next(iter(data.loader("train", batch_size=10**6, shuffle=False)))
    sizes = data.schema.vocabulary_sizes.values()
    return [torch.bincount(batch.ids[:, index], minlength=size) for index, size in enumerate(sizes)]


def test_ids_are_counted_in_the_training_rows(data, monkeypatch):
    prepared = PreparedData.open(data)
    monkeypatch.setattr("cce.training.frequent_ids.BLOCK", 33)  # many blocks, the last not whole
    counts = count_ids(prepared)
    assert list(counts) == list(prepared.schema.vocabulary_sizes)
    for count, wanted in zip(counts.values(), counted_by_hand(prepared), strict=True):
        assert torch.equal(count, wanted)
        assert count.sum() == prepared.num_rows("train")


@pytest.mark.parametrize(("min_count", "wanted"), [(1, 5), (2, 4), (3, 3), (9, 2), (10, 1)])
def test_frequent_ids_are_the_first_whatever_the_count_of_unseen_ones(min_count, wanted):
    assert num_frequent(torch.tensor([0, 9, 4, 2, 1]), min_count) == wanted


@pytest.mark.slow
def test_a_run_learns_pointers_of_frequent_ids_only(data, tmp_path):
    config = tiny_config(data, learned_min_count=8, epochs=1)
    counts = counted_by_hand(PreparedData.open(data))
    trainer = Trainer(config, tmp_path / "run")
    trainer.run()
    wanted = {
        f"{name}": 1 + int((c[1:] >= 8).sum()) for name, c in zip(trainer.config.num_learned, counts, strict=True)
    }
    assert trainer.config.num_learned == wanted
    assert make_config(read_toml(tmp_path / "run" / "config.toml")).num_learned == wanted
    tables = {n: t for n, t in trainer.model.tables.tables.items() if isinstance(t, ClusteredEmbedding)}
    assert tables
    for name, table in tables.items():
        assert table.assignments.num_learned == wanted[name] < table.num_embeddings
    scores = evaluate_checkpoint(tmp_path / "run", data).scores  # a saved model has them as well
    assert 0 < scores["bce"] < 2


@pytest.mark.parametrize(
    "changes",
    [{"preset": "paper"}, {"learned_min_count": 1}, {"method": "hash"}, {"method_options": {"num_learned": 7}}],
)
def test_otherwise_nothing_is_counted(data, changes):
    config = tiny_config(data, **changes)
    assert with_num_learned(config, PreparedData.open(data)) is config


def test_what_was_given_is_kept(data):
    config = replace(tiny_config(data), num_learned={"f0": 3})
    assert with_num_learned(config, PreparedData.open(data)) is config
