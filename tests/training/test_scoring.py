"""Scores of a split, by any metrics, by one process and by several."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from cce.data import PreparedData
from cce.evaluation import ScoredRows, find_metric
from cce.schema import Batch
from cce.training.model import make_model
from cce.training.scoring import score
from helpers import scoring_ranks
from helpers.runs import tiny_data, tiny_resolved
from helpers.scores import auc, binary_cross_entropy

TESTS = Path(__file__).resolve().parents[1]
CPU = torch.device("cpu")
ALL = ["bce", "auc", "normalized_entropy", "calibration", "ece"]


@pytest.fixture
def scored(data):
    prepared = PreparedData.open(data)
    return make_model(vars(tiny_resolved(data)), prepared.schema), prepared


def test_scores_are_those_of_all_rows_whatever_the_batches(scored):
    model, prepared = scored
    whole = next(iter(prepared.loader("validation", batch_size=1000, shuffle=False)))
    with torch.no_grad():
        logits = model(whole)
    for batch_size in (7, 100):
        loader = prepared.loader("validation", batch_size=batch_size, shuffle=False)
        found = score(model, loader, device=CPU)
        assert list(found) == ["bce", "auc"]
        assert found["bce"] == pytest.approx(binary_cross_entropy(logits, whole.labels), abs=1e-6)
        assert found["auc"] == pytest.approx(auc(logits, whole.labels), abs=1e-3)
    assert model.training


def test_all_metrics_are_those_of_all_rows(scored):
    model, prepared = scored
    whole = next(iter(prepared.loader("validation", batch_size=1000, shuffle=False)))
    with torch.no_grad():
        logits = model(whole)
    rows = ScoredRows.of(logits, whole.labels)
    loader = prepared.loader("validation", batch_size=13, shuffle=False)
    found = score(model, loader, ALL, device=CPU)
    assert list(found) == ALL
    for name in ALL:
        assert found[name] == pytest.approx(find_metric(name).score(rows), abs=1e-6)


def test_one_kind_of_label_has_a_bce_and_no_auc(scored):
    model, prepared = scored
    loader = prepared.loader("validation", batch_size=1, shuffle=False)
    found = score(model, [next(iter(loader))], device=CPU)
    assert found["bce"] > 0
    assert math.isnan(found["auc"])


def test_no_rows_have_no_scores(scored):
    assert all(math.isnan(value) for value in score(scored[0], [], ALL, device=CPU).values())


class Broken(nn.Module):
    """A model that gives the dense values themselves."""

    def forward(self, batch):
        return batch.dense[:, 0]


def test_logits_that_are_not_finite_are_rejected_with_their_position_in_the_split():
    def batch(*values):
        return Batch(torch.tensor(values)[:, None], torch.zeros(len(values), 1).long(), torch.ones(len(values)))

    model = Broken()
    with pytest.raises(ValueError, match=r"^logits must be finite, got 1 of 3 .*; the first, at position 3, is nan\.$"):
        score(model, [batch(0.0, 1.0), batch(2.0, math.nan, 4.0)], device=CPU)
    assert model.training


# -- several processes -------------------------------------------------------------------------------------------------


def processes(count, data):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [*command, str(TESTS / "helpers" / "scoring_ranks.py"), str(data), *ALL],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.slow
def test_three_processes_get_the_scores_of_one_to_the_bit_and_fail_together(tmp_path, capsys):
    data = tiny_data(tmp_path / "data", num_rows=5_000)  # 500 validation rows: the last batch has fewer than processes
    scoring_ranks.main(data, ALL)
    one, several = json.loads(capsys.readouterr().out), processes(3, data)
    assert len(several) == 3
    assert set(one["exact"]) == set(ALL)
    for each in several:
        assert each["exact"] == one["exact"]
        assert each["error"] == "logits must be finite, got 1 of 28 that are not; the first, at position 77, is nan."
    assert one["error"] == "logits must be finite, got 1 of 83 that are not; the first, at position 77, is nan."
