#!/usr/bin/env bash
# An environment with TorchRec, which brings a CUDA build of torch if pip may choose, and our tests of it:
#
#     tests/torchrec_environment.sh FOLDER [TORCHREC_VERSION]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 version=${2:-1.9.2}
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
pip="$folder/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt"
$pip torch
$pip numpy numba safetensors pyarrow pytest hypothesis mypy-extensions tqdm
$pip --no-deps cloudpickle
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    "torchrec==$version" fbgemm-gpu-cpu==1.8.0 torchmetrics==1.0.3 lightning-utilities \
    tensordict pyre-extensions iopath portalocker typing-inspect orjson pyvers
PYTHONPATH=src "$folder/bin/python" -m pytest -q -p no:cacheprovider tests/integrations/test_torchrec.py
