"""The promise: with the README's lines a loop of one's own scores as `cce train` does, and as full tables do."""

import pytest
import torch
from benchmarks.real_sets.data import part_of, read_rows
from benchmarks.real_sets.models import DeepFM
from benchmarks.real_sets.runs import in_process
from benchmarks.real_sets.ways import WAYS, Job, score


@pytest.mark.slow
def test_the_readmes_lines_in_a_plain_loop_score_as_the_trainer_and_as_full_tables(real_data):
    rows = part_of(read_rows(real_data("ml1m.parquet").parent, "ml1m"), num_features=2)  # ids as they appear
    found = {}
    for way in ("full", "cce", "cce-train"):
        torch.manual_seed(0)
        model = DeepFM(rows.sizes, 0)
        found[way] = WAYS[way](Job(rows, model, lr=2e-3, epochs=2, served=0, seed=0))
        found[way].setdefault("test", score(model, rows, "test"))
    own, trainer, full = found["cce"], found["cce-train"], found["full"]
    assert own["test"] == pytest.approx(trainer["test"], abs=0.002)  # one seed each; means of eight are within 0.0002
    assert own["test"] < full["test"] + 0.002
    assert trainer["served"] < 4 * 16 * sum(rows.sizes) / 4
    assert own["held"] < full["held"] / 10


def test_a_run_in_a_process_of_its_own_returns_its_figures_or_its_error():
    assert in_process(lambda: {"test": 0.5}) == {"test": 0.5}

    def fail():
        raise ValueError("too small")

    with pytest.raises(ValueError, match="too small"):
        in_process(fail)
