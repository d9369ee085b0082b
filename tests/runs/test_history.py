"""How a run went, from its log and from its pack."""

import json
import shutil

import pytest

from cce.runs import load_run, pack_run, read_history


@pytest.mark.slow
def test_a_pack_has_the_validations_and_clusterings_of_the_log(trained, tmp_path):
    trained = shutil.copytree(trained, tmp_path / "run")
    file = trained / "metrics.jsonl"
    first, *others = file.read_text().splitlines()  # so short a run logs no losses
    file.write_text("\n".join([first, json.dumps({"kind": "train", "step": 5, "loss": 0.5, "lr": 0.1}), *others, ""]))
    log = [json.loads(line) for line in file.read_text().splitlines()]
    whole = read_history(load_run(trained))
    assert [line["step"] for line in whole.losses] == [5]
    assert whole.clusterings == [line for line in log if line["kind"] == "cluster"] != []
    assert whole.curve == [line for line in log if line["kind"] == "validation"] != []
    pack_run(trained, tmp_path / "one.ccez")
    packed = read_history(load_run(tmp_path / "one.ccez"))
    assert packed.record == whole.record is not None
    assert [line["bce"] for line in packed.curve] == [line["bce"] for line in whole.curve]
    assert [line["churn"] for line in packed.clusterings] == [line["churn"] for line in whole.clusterings]
    assert (packed.losses, packed.refits) == ([], [])
