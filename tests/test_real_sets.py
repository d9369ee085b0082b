"""The benchmark of eight real sets: every way trains, and the pages show what the records say."""

from pathlib import Path

import pytest
import torch
from benchmarks.real_sets import data, runs, tables, ways
from benchmarks.real_sets.models import DeepFM

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def rows():
    g = torch.Generator().manual_seed(0)
    ids = torch.stack([torch.randint(2_000, (6_000,), generator=g), torch.randint(30, (6_000,), generator=g)], 1)
    taste = torch.randn(2_000, generator=g)
    labels = (taste[ids[:, 0]] + 0.3 * torch.randn(6_000, generator=g) > 0).float()
    parts = dict(zip(("train", "validation", "test"), torch.arange(6_000).split([4_000, 1_000, 1_000]), strict=True))
    return data.Rows(ids, torch.randn(6_000, 2, generator=g), labels, [2_000, 30], parts)


@pytest.mark.slow
@pytest.mark.parametrize("way", [way for way in ways.WAYS if "train" not in way])
def test_every_way_trains_and_keeps_the_weights_that_validated_best(rows, way, monkeypatch):
    monkeypatch.setattr(ways, "BATCH", 256)
    torch.manual_seed(0)
    model = DeepFM(rows.sizes, 2)
    found = ways.WAYS[way](ways.Job(rows, model, 0.01, 3, 20_000, 0))
    assert found["validation"] < 0.72
    if way in ("cce", "full", "cce-paper"):
        assert ways.score(model, rows, "validation") == pytest.approx(found["validation"], abs=1e-6)


def test_splits_by_time_have_the_latest_rows_last_and_leave_days_out():
    times = torch.randperm(1_000).numpy()  # days
    parts = data._split(1_000, times, 28)
    assert times[parts["train"]].max() < times[parts["validation"]].min()
    assert times[parts["validation"]].max() < times[parts["test"]].min() - 28
    assert len(parts["test"]) == 100


def test_the_rate_is_chosen_on_validation_rows():
    of_rates = [("a", 0.001, 0, 0.3, 0.1), ("a", 0.001, 1, 0.6, 0.1)]  # the best seed, and the worst
    of_rates += [("a", 0.003, 0, 0.4, 0.9), ("a", 0.003, 1, 0.4, 0.7)]
    names = ("set", "lr", "seed", "validation", "test")
    records = [dict(zip(names, run, strict=True)) | {"model": "m", "way": "w"} for run in of_rates]
    found = runs.chosen(records)["a", "m", "w"]
    assert runs.average(found, "test") == pytest.approx(0.8)


@pytest.mark.parametrize("page", tables.PAGES, ids=str)
def test_pages_show_what_the_records_say(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = page.read_text()
    assert tables.with_tables(text, tables.PAGES[page](runs.read_records())) == text, (
        "run python -m benchmarks.real_sets table"
    )
