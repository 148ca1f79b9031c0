PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

# What exists is checked: examples and tests may be absent from a partial tree.
LINTED := $(wildcard src tests examples infra bench)
TYPED := $(wildcard src examples infra)
# The kinds of Lambda packages; what is synthesized: the example agent and the minimal one.
LAMBDA_LOCKS := $(basename $(notdir $(wildcard infra/infinity_cdk/locks/*.in)))
SYNTHESIZED := . examples/minimal_agent

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check torture fuzz synth deploy-local arm64 lint format lock bench clean

help: ## print this list
	@awk 'BEGIN {FS = ":[^#]*## "} /^[a-z][a-z0-9-]*:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## create .venv with everything the other targets need (they all do this themselves)
	@:

demo: $(VENV)/.ready ## run the demo on this machine: SQLite, no account needed
	@$(PY) -m infinity_agents.local.demo $(ARGS)

test: $(VENV)/.ready ## run the quick tests (ARGS="-k name" to narrow)
	@$(PY) -m pytest -q -n 2 --dist worksteal -m "not slow" $(ARGS)

check: lint $(VENV)/.ready ## everything: lint, types, layers and all tests, the slow ones too
	@$(PY) -m pytest -q -n 2 --dist worksteal $(ARGS)

torture: $(VENV)/.ready ## kill and restart the runtime at random and check that nothing is lost (ARGS=...)
	@$(PY) -m tests.torture $(ARGS)

fuzz: $(VENV)/.ready ## throw hostile input at all that reads from outside (ARGS="--seconds 60 --json")
	@$(PY) -m tests.fuzz $(ARGS)

synth: $(VENV)/.ready ## synthesize the examples for AWS: no credentials, no Docker; prints the size of each package
	@$(PY) infra/synthesize.py $(SYNTHESIZED) $(ARGS)

deploy-local: $(VENV)/.ready ## deploy the minimal agent on stand-ins with the real CDK command line, and say hello to it
	@$(PY) -m tests.deploy_local $(ARGS)

arm64: $(VENV)/.ready ## run the functions' packages on an emulated arm64 with Debian's Python 3.13 (ARGS=--json)
	@PYTHONPATH=infra $(PY) -m tests.arm64 $(ARGS)

lint: $(VENV)/.ready ## ruff, formatting, mypy and the import layers
	@$(BIN)/ruff check $(LINTED)
	@$(BIN)/ruff format --check $(LINTED)
	@$(PY) -m mypy $(TYPED)
	@PYTHONPATH=src:infra $(BIN)/lint-imports

format: $(VENV)/.ready ## fix what ruff can fix, and format
	@$(BIN)/ruff check --fix-only $(LINTED)
	@$(BIN)/ruff format $(LINTED)

lock: .uv/bin/uv ## pin the dependencies of pyproject.toml in requirements.lock (ARGS=--upgrade for newer ones)
	@.uv/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	  --output-file requirements.lock $(ARGS) pyproject.toml
	@.uv/bin/uv pip compile --quiet --universal --python-version 3.11 --extra bench --generate-hashes \
	  --constraint requirements.lock --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	  --output-file requirements-bench.lock $(ARGS) pyproject.toml

	@for kind in $(LAMBDA_LOCKS); do \
	  .uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	    --constraint requirements.lock --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	    --output-file infra/infinity_cdk/locks/$$kind.lock $(ARGS) infra/infinity_cdk/locks/$$kind.in || exit 1; \
	done

bench: $(VENV)/.ready ## measure, beside a bare loop, and write docs/benchmarks.md with its plot
	@$(PY) -m pip install --quiet --require-hashes -r requirements-bench.lock
	@$(PY) -m bench.report $(ARGS)

clean: ## remove .venv and everything generated
	rm -rf $(VENV) .uv .cache build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The pinned packages. Made anew whenever the lock changes.
$(VENV)/.locked: requirements.lock
	$(require-python)
	@echo "setting up .venv (about a minute)..."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --require-hashes -r requirements.lock
	@touch $@

# The project itself, editable, built by the pinned backend.
$(VENV)/.ready: $(VENV)/.locked pyproject.toml
	@$(PY) -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

.uv/bin/uv:
	$(require-python)
	@rm -rf .uv
	@$(PYTHON) -m venv .uv
	@.uv/bin/python -m pip install --quiet uv

define require-python
@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
  echo "error: '$(PYTHON)' not found. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "error: Python 3.11 or newer is needed, and '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }
@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
  echo "error: '$(PYTHON)' cannot create virtual environments: it lacks venv or ensurepip." >&2; \
  echo "       On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
endef
