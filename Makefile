# The commands of a checkout. Needs Python 3.11+, make and g++; creates its own .venv.
#
#   PYTHON=python3.12   the interpreter for .venv
#   TORCH_INDEX=URL     the package index of another build of PyTorch, such as one for CUDA
#   MUTATE_MINUTES=60   how long mutate runs after it has measured which tests run which lines
#   DATA=DIR            a prepared data folder, for which bench also times the data loader

PYTHON ?= python3
TORCH_INDEX ?=
DATA ?=
MUTATE_MINUTES ?= 60
SPEED := docs/results/speed.md
LECTURES := docs/concepts/lectures.md

BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input
# PyTorch is installed first and by exact version: otherwise pip may choose another build that a
# dependency accepts, with gigabytes of CUDA libraries.
TORCH := $(shell grep '^torch==' constraints.txt)

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-rest test-machines test-javascript test-llama mutate fuzz check \
    format recipes analyses compressions studies docs wheel documents bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.development ## Create .venv with all development dependencies

quickstart: .venv/.runtime ## Train, fine-tune and export an encoder in ten minutes, without a download
	@rm -rf quickstart
	@$(BIN)/bertwright quickstart -o quickstart

test: .venv/.development ## Run most tests, in ten minutes (warnings are errors)
	$(BIN)/pytest -n 2 --dist worksteal

test-rest: .venv/.development ## Run the tests that make test leaves out: long ones, more recipes
	$(BIN)/pytest -n 2 --dist worksteal --full -m full

test-machines: .venv/.development ## Compare results with other instruction sets and compilers
	$(BIN)/python -m tests.machines --document docs/results/machines.md

test-javascript: .venv/.development ## Open exports in node and, if it is installed, Chromium
	npm ci --prefix tests/parity/javascript
	$(BIN)/pytest -m javascript

test-llama: .venv/.development ## Open exports in llama.cpp, which is compiled (needs cmake)
	$(PIP) --constraint constraints.txt --editable '.[llama-cpp]'
	$(BIN)/pytest -m llama_cpp

mutate: .venv/.development ## Test the tests with mutants of the code, for MUTATE_MINUTES
	nice -n 10 $(BIN)/python -m mutation --minutes $(MUTATE_MINUTES) \
	    --document docs/results/mutation.md

fuzz: .venv/.development ## Test strange inputs, kills and full disks (half an hour)
	$(BIN)/python -m fuzz inputs --count 100000 --document docs/results/machines.md
	$(BIN)/python -m fuzz kills --count 200 --document docs/results/machines.md
	$(BIN)/python -m fuzz disk --count 10 --document docs/results/machines.md

check: .venv/.development ## Check format, lint, types, imports between packages, spelling, links
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs src
	$(BIN)/pytest tests/docs/test_links.py

format: .venv/.development ## Format the code and fix what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

recipes: .venv/.development ## Count, train, resume and export every recipe, briefly
	$(BIN)/python -m experiments recipes --quick

analyses: .venv/.development ## Check that every analysis finds what was planted for it, briefly
	$(BIN)/python -m experiments analyses --quick

compressions: .venv/.development ## Check every compression method on a toy model, briefly
	$(BIN)/python -m experiments compressions --quick

studies: .venv/.development ## Run every study of a claim and write docs/claims.md (hours; can be resumed)
	$(BIN)/bertwright study run -o studies --processes 2 --until decided
	for result in studies/*/result.json; do \
	    folder=docs/results/$${result%/*}; mkdir -p $$folder && cp $$result $$folder; done
	$(BIN)/python -m experiments claims docs/results/studies --document docs/claims.md
	$(BIN)/python -m experiments lectures docs/results --document $(LECTURES)

docs: .venv/.development ## Build the documentation into docs/_build, without warnings
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build

wheel: .venv/.development ## Build the wheel, and use it in an empty environment
	.ci/wheel

documents: .venv/.development ## Update the computed values in README and docs (after make quickstart)
	$(BIN)/python docs/one_token.py
	$(BIN)/python docs/readme.py quickstart
	$(BIN)/python -m experiments lectures docs/results --document $(LECTURES)

bench: .venv/.development ## Time training, embedding and preparation against other libraries
	$(BIN)/python -m benchmarks pretrain --document $(SPEED) $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks embed --document $(SPEED)
	$(BIN)/python -m benchmarks prepare --document $(SPEED)
	$(BIN)/python -m benchmarks memory --document $(SPEED)
	$(BIN)/python -m benchmarks attention --document $(SPEED)
	$(BIN)/python -m benchmarks recipes --document $(SPEED)

clean: ## Remove .venv and every cache
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Two stamps, so that the quickstart does not install the development tools.
.venv/.runtime: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or newer is needed, this is %d.%d: run make PYTHON=..." % sys.version_info[:2])'
	@echo "Installing into .venv: $(TORCH), then bertwright ..." >&2
	@$(PYTHON) -m venv .venv
	@$(PIP) $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	@$(PIP) --constraint constraints.txt --editable '.[huggingface]'
	@touch $@

.venv/.development: .venv/.runtime
	@echo "Installing into .venv: the development tools ..." >&2
	@$(PIP) --constraint constraints.txt --editable '.[dev]'
	@touch $@
