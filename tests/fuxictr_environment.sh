#!/usr/bin/env bash
# An environment with FuxiCTR and torch-rechub, which have many dependencies of their own, and our tests of them:
#
#     tests/fuxictr_environment.sh FOLDER [FUXICTR_VERSION]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 version=${2:-2.3.10}
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
pip="$folder/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt"
$pip torch
$pip numba safetensors pyarrow pytest hypothesis tqdm "fuxictr==$version" torch-rechub==0.9.0
PYTHONPATH=src "$folder/bin/python" -m pytest -q -p no:cacheprovider tests/test_examples.py -k other_peoples
