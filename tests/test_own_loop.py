"""The promise: with the README's lines a loop of one's own scores as `cce train` does, and as full tables do."""

import pytest
import torch
from benchmarks import own_loop


@pytest.mark.slow
def test_the_readmes_lines_in_a_plain_loop_score_as_the_trainer_and_as_full_tables(real_data, tmp_path, monkeypatch):
    monkeypatch.setattr(own_loop, "EPOCHS", 2)
    rows = own_loop.Rows(real_data("ml1m.parquet"), None)  # ids in the order in which they appear
    torch.manual_seed(0)
    full = own_loop.run_full(rows, 2e-3)
    torch.manual_seed(0)
    own = own_loop.run_own_loop(rows, 2e-3)
    trainer = own_loop.run_trainer(rows, 2e-3, 0, tmp_path)
    assert own["test"] == pytest.approx(trainer["test"], abs=0.002)
    assert own["test"] < full["test"] + 0.002
    assert own["served"] < full["served"] / 8
    assert own["held"] < full["held"] / 10
