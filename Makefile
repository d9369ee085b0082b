# Set-up is two commands: `make demo` and `make test`. Both need only Python 3.11+ and a network.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO_OUT ?= runs/demo
SETTINGS ?=
KILLS ?= 60
# A process that crashes ends its tests as failed: xdist would replace it, and wait for ever with --dist loadfile.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --max-worker-restart 0

# Modules are compiled when they are first imported: pip would compile every file of every package, one by one.
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt

.PHONY: demo test suite test-fast test-settings test-torchrec soak lint bench docs clean

demo: $(VENV)/installed  ## train a small recommender with three kinds of table; print a table, write a page
	$(BIN)/cce demo --out $(DEMO_OUT)
	$(BIN)/cce report $(DEMO_OUT)/records.jsonl

test: lint suite  ## everything that CI checks

suite: $(VENV)/installed-dev
	$(PYTEST) --dist loadfile --no-loadscope-reorder

test-fast: $(VENV)/installed-dev  ## the tests that one runs while working: all but the slow ones
	$(PYTEST) -q -m 'not slow'

test-settings: $(VENV)/installed-dev  ## what a machine could disturb, as on other machines; SETTINGS='avx2 generic' for some
	$(BIN)/python tests/settings.py $(SETTINGS)

test-torchrec: $(VENV)/installed-dev  ## tests with TorchRec, which is put into a folder of its own
	PYTHON=$(BIN)/python tests/torchrec_environment.sh $(VENV)/torchrec

soak: $(VENV)/installed-dev  ## SIGKILLs at random moments, and a comparison with what nobody disturbed; KILLS=60
	PYTHONPATH=. $(BIN)/python tests/soak.py --kills $(KILLS)

lint: $(VENV)/installed-dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/installed-dev  ## speed and memory, side by side with peers; JSON under results/bench
	$(BIN)/python -m benchmarks

docs: $(VENV)/installed-docs  ## docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# torch goes in first and exactly as pinned: a looser request would resolve to a CUDA build of several gigabytes.
$(VENV)/torch: constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("cce needs Python 3.11 or newer; try make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	@touch $@

$(VENV)/installed: $(VENV)/torch pyproject.toml
	$(PIP) --editable '.[data,report]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/torch pyproject.toml
	$(PIP) --editable '.[test,lint]'
	@touch $@

$(VENV)/installed-docs: $(VENV)/torch pyproject.toml
	$(PIP) --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
