import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cce
from cce.training.environment import environment


def test_it_tells_versions_and_the_machine_in_words_of_json():
    facts = json.loads(json.dumps(environment()))
    assert facts["torch"] == torch.__version__
    assert facts["cce"] == cce.__version__
    assert facts["cores"] >= 1
    assert facts["threads"] == torch.get_num_threads()
    assert facts["processor"]


def test_of_a_checkout_it_tells_the_commit():
    commit = environment()["commit"]
    assert commit is None or re.fullmatch(r"[0-9a-f]{12}\+?", commit)


@pytest.mark.slow
def test_without_a_checkout_there_is_no_commit(tmp_path):
    package = tmp_path / "cce"
    shutil.copytree(Path(cce.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    code = "from cce.training.environment import environment; print(environment()['commit'])"
    command = [sys.executable, "-c", code]
    found = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "None"
