"""How often ids occur, and how much of a split training rows say nothing about."""

import numpy as np

import cce
from cce.data import PreparedData, unseen_lines, unseen_shares
from cce.training import count_ids as count_for_tables
from helpers.raw_files import write_csv
from helpers.runs import tiny_data


def test_ids_are_counted_in_blocks_as_at_once(tmp_path, monkeypatch):
    data = PreparedData.open(tiny_data(tmp_path / "data"))
    batch = next(iter(data.loader("test", batch_size=10**6, shuffle=False)))
    monkeypatch.setattr("cce.data.prepared.COUNTED", 7)
    for index, (name, size) in enumerate(data.schema.vocabulary_sizes.items()):
        expected = np.bincount(batch.ids[:, index].numpy(), minlength=size)
        assert np.array_equal(data.count_ids("test", name), expected)


def test_shares_are_those_of_ids_that_training_rows_have_too_seldom(tmp_path):
    data = PreparedData.open(tiny_data(tmp_path / "data"))
    seen, held_out = (data.count_ids(split, "c0") for split in ("train", "test"))
    found = unseen_shares(data, least={"c0": 3})
    assert found["test"]["c0"] == held_out[seen < 3].sum() / held_out.sum() > 0
    assert found["train"]["c0"] == seen[seen < 3].sum() / seen.sum() > 0
    assert unseen_shares(data)["train"] == {"c0": 0, "c1": 0, "c2": 0}


def test_values_outside_the_vocabulary_are_unseen_though_training_rows_have_them(tmp_path):
    rows = [(n % 2, "often" if n % 4 else f"once {n}") for n in range(100)]
    write_csv(tmp_path / "a.csv", ("y", "v"), rows)
    columns = {"label": "y", "categorical": ["v"], "min_count": 2, "split": "order"}
    data = cce.prepare(tmp_path / "a.csv", tmp_path / "data", progress=False, **columns)
    assert unseen_shares(data)["train"] == {"v": 0.25}
    assert count_for_tables(data, "v").tolist() == [0, 60]  # id 0 earns no row


def test_a_feature_with_many_in_a_held_out_split_is_named():
    shares = {"train": {"a": 0.5, "b": 0.0}, "test": {"a": 0.3, "b": 0.1}}
    assert unseen_lines(shares, "unseen in training") == [
        "occurrences unseen in training: train 25.0%, test 20.0%",
        "warning: more than 20% of test is unseen in training, by feature: a 30%",
    ]
