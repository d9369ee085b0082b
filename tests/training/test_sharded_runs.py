"""`torchrun -m cce train --shard` ends with the scores of one process."""

import json
import subprocess
import sys

import pytest

import cce
from cce.cli import main
from cce.training import Trainer
from helpers.runs import tiny_data

OPTIONS = [
    "--epochs",
    "1",
    "--batch-size",
    "128",
    "--model-options",
    "bottom=[8]",
    "top=[8]",
    "--refits",
    "1",
    "--json",
]


@pytest.mark.slow
def test_a_sharded_run_ends_with_the_scores_of_one_process(tmp_path, capsys):
    data = tiny_data(tmp_path / "data", num_rows=6000, vocabulary_sizes=(3000, 2000, 30))
    main(["train", str(data), "--out", str(tmp_path / "one"), *OPTIONS])
    one = json.loads(capsys.readouterr().out)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "cce"]
    given = ["train", str(data), "--shard", "--out", str(tmp_path / "two"), *OPTIONS]
    ran = subprocess.run([*command, *given], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    two = json.loads(ran.stdout)
    assert two["resolved"]["shard"]
    for name in ("nbytes", "num_params"):
        assert two[name] == one[name]
    for curve in ("curve_before_finalize", "curve"):
        scores = [[each["bce"] for each in record[curve]] for record in (two, one)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
        assert len(scores[0]) >= 2
    assert two["scores"]["bce"] == pytest.approx(one["scores"]["bce"], abs=1e-4)
    model = cce.load_run(tmp_path / "two").model
    assert not any(table.is_sharded for table in model.tables.tables.values() if table.method == "cce")
    trainer = Trainer.resume(tmp_path / "two", shard=False)  # it goes on in one process
    trainer.close()
