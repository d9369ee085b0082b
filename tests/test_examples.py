"""The examples run, quickly, and say what they promise."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).resolve().parents[1] / "examples"
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("test_"))  # those are collected


@pytest.fixture
def example(capsys, tmp_path, monkeypatch):
    """`example(name)` runs a script as its user would, and gives what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        with torch.random.fork_rng(devices=[]):
            runpy.run_path(str(EXAMPLES[0].with_name(name)), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_every_example_is_tested():
    assert [path.name for path in EXAMPLES] == [
        "compress_a_model.py",
        "fuxictr_model.py",
        "ours.py",  # by tests/test_plugins.py
        "own_loop.py",
        "own_method.py",
        "own_model.py",
        "pointers_instead_of_ids.py",
        "rechub_model.py",
        "replace_embedding.py",
        "sharded.py",
        "stream.py",
        "train_with_clustering.py",
    ]


def test_replacing_a_table_keeps_the_model_trainable(example):
    printed = example("replace_embedding.py")
    losses = [float(loss) for loss in re.findall(r"loss (\d\.\d+) -> (\d\.\d+)", printed)[0]]
    assert losses[1] < losses[0]
    assert "fewer bytes" in printed


def test_clustering_comes_nearer_to_the_oracle_than_hashing(example):
    printed = example("train_with_clustering.py")
    score = {
        name: float(value) for name, value in re.findall(r"^([\w-]+) +(?:[\d,]+ params  )?BCE (\d\.\d+)", printed, re.M)
    }
    assert score.keys() == {"hash", "cce-paper", "oracle"}
    assert score["oracle"] < score["cce-paper"] < score["hash"]


def test_in_a_loop_of_ones_own_cce_scores_as_the_full_table_does_in_a_fortieth_of_its_bytes(example):
    printed = example("own_loop.py")
    found = re.findall(r"^(\w+) +test BCE (\d\.\d+) +([\d,]+) bytes", printed, re.M)
    bce, nbytes = ({name: float(line[at].replace(",", "")) for name, *line in found} for at in (0, 1))
    assert bce["full"] == pytest.approx(0.446, abs=0.002)  # what the README says
    assert bce["cce"] == pytest.approx(0.444, abs=0.002)
    assert bce["hash"] == pytest.approx(0.536, abs=0.01)
    assert nbytes["hash"] <= nbytes["cce"] < nbytes["full"] / 40
    assert "the same scores: True" in printed


def test_sharded_rows_end_with_the_score_of_one_process(example):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    two = subprocess.run([*command, FOLDER / "sharded.py"], capture_output=True, text=True, timeout=300)
    found = [
        re.findall(r"(\d) processes, ([\d,]+) rows .* BCE (\S+) of", said)
        for said in (example("sharded.py"), two.stdout)
    ]
    (one,), (several,) = ([[float(each.replace(",", "")) for each in line] for line in lines] for lines in found)
    assert [one[0], several[0]] == [1, 2], two.stderr
    assert several[1] == pytest.approx(one[1] / 2, rel=0.02)
    assert several[2] == pytest.approx(one[2], abs=5e-4) == pytest.approx(0.396, abs=2e-3)


def test_stored_pointers_give_the_same_vectors(example):
    assert "the same vectors: True; 16,000 bytes instead of 366,099" in example("pointers_instead_of_ids.py")


def test_compressing_a_dlrm_shows_its_plan_first(example):
    printed = example("compress_a_model.py")
    plan, weights = printed.split("Compressed")
    assert plan.count("smaller than min_params") == 1
    assert "nn.Embedding" in weights  # the kept one
    assert "largest table" in weights


def test_a_method_outside_the_library_has_a_budget_and_a_footprint(example):
    printed = example("own_method.py")
    assert "FactorizedEmbedding(10000, 16, num_params=30048)" in printed
    assert re.search(r"factorized +10,000 +16 +160,000 +30,048", printed)


def test_a_model_from_a_file_is_trained(example):
    params, bce, auc = re.match(r"([\d,]+) params  test BCE (\d\.\d+)  AUC (\d\.\d+)", example("own_model.py")).groups()
    assert params == "4,000"
    assert float(bce) < 0.69
    assert float(auc) > 0.6


def test_a_stream_that_was_killed_on_day_six_has_the_scores_of_one_that_was_not(example, tmp_path):
    printed = example("stream.py")
    assert "killed on day six, by signal 9" in printed
    assert "goes on at row 2,000 of day 6" in printed
    lines = re.findall(r"^ +(\d+) +(0\.\d+) +(0\.\d+) +([\d,]+) +([\d,]+)$", printed, re.M)
    bce, best, rows = ([float(line[at].replace(",", "")) for line in lines] for at in (1, 2, 3))
    assert [int(line[0]) for line in lines] == list(range(1, 11))
    assert sum(bce[5:]) < sum(bce[:5])
    assert all(low < high for low, high in zip(best, bce, strict=True))
    assert max(rows) <= 1_500  # though 2,400 users come in all
    assert re.search(
        r"^9 deltas of [\d,]+ bytes; a service that applied them has the last vectors: True$", printed, re.M
    )
    (tmp_path / "stream.pt").unlink()
    undisturbed = runpy.run_path(str(FOLDER / "stream.py"))["train_days"](is_killed=False)
    assert [f"{score[0]:.4f}" for score in undisturbed] == [line[1] for line in lines]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("package", "name"), [("fuxictr", "fuxictr_model.py"), ("torch_rechub", "rechub_model.py")])
def test_other_peoples_trainers_train_compressed_tables(example, package, name):
    pytest.importorskip(package, reason=f"{package} is not installed", exc_type=ImportError)
    assert "2 tables compressed" in example(name)
