#!/usr/bin/env bash
# Our tests of TorchRec, with the packages of `make test` and, in a folder, TorchRec, which by itself would bring a CUDA
# build of torch:
#
#     tests/torchrec_environment.sh FOLDER [TORCHREC_VERSION]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 version=${2:-1.9.2} python=${PYTHON:-.venv/bin/python}
"$python" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --upgrade --target "$folder" \
    "torchrec==$version" fbgemm-gpu-cpu==1.8.0 torchmetrics==1.0.3 lightning-utilities cloudpickle mypy-extensions \
    tensordict pyre-extensions iopath portalocker typing-inspect orjson pyvers tqdm
PYTHONPATH="src:$folder" "$python" -m pytest -q -n 0 -p no:cacheprovider tests/integrations/test_torchrec.py
