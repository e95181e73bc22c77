# Every target sets up what it needs: .venv holds the locked environment, .tools what is installed besides.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := .venv/bin
READY := .venv/.ready
REPORT := build/junit.xml
UV := "$$(python3 scripts/need.py uv)"

.PHONY: help setup demo test check static services bench format lock clean

help: ## show the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

setup: $(READY) ## make the environment in .venv; PYTHON=… says with which interpreter

demo: $(READY) ## start a server with example tables
	INVER_DEMO_PYTHON="$$($(BIN)/python -m tests.fixtures.clients pyiceberg)" \
	INVER_DEMO_SHARING_PYTHON="$$($(BIN)/python -m tests.fixtures.clients delta_sharing)" $(BIN)/inver demo $(ARGS)

test: static services ## static checks and every test
	$(BIN)/pytest --junit-xml=$(REPORT) $(ARGS)

check: static ## static checks, unit and contract tests: under two minutes
	$(BIN)/pytest -q -n auto --maxprocesses 4 --dist loadfile -m 'not slow' tests/unit tests/contract $(ARGS)

bench: $(READY) services ## measure, beside the peers that can be started
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m bench $(ARGS)

format: $(READY) ## format the code and fix what can be fixed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lock: ## write requirements.lock; ARGS=--upgrade takes newer versions
	$(UV) pip compile pyproject.toml --group dev --all-extras --universal --generate-hashes --quiet \
		--custom-compile-command 'make lock' --output-file requirements.lock $(ARGS)

clean: ## remove the environment and everything made; .tools stays
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench scripts -name __pycache__ -prune -exec rm -rf {} +

static: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# The servers that some tests start; without them these tests are skipped.
services: $(READY)
	$(BIN)/python scripts/need.py postgres
	$(BIN)/python scripts/need.py versitygw

# hatchling is in the lock file, so that building inver itself fetches nothing. Bytecode is made here, since
# a machine may forbid interpreters to write it, and compiling is most of the start of a program then.
$(READY): requirements.lock pyproject.toml
	$(UV) venv --quiet --allow-existing --python "$${PYTHON:-$$(python3 scripts/need.py python)}" .venv
	$(UV) pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src
	touch $@
