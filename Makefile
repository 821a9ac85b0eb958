# Everything one does with a checkout. Needs Python 3.11+, make and g++; makes its own .venv.
#
#   PYTHON=python3.12   the interpreter to build .venv with
#   TORCH_INDEX=URL     the package index to take another build of PyTorch from (a CUDA one, say)
#   DATA=DIR            a data folder from which bench also times how long batches take to come

PYTHON ?= python3
TORCH_INDEX ?=
DATA ?=
SPEED := docs/results/speed.md

BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input
# Spelled with its version and installed first: only so does pip take the build that is at hand,
# and not whatever a dependency would accept, with gigabytes of CUDA libraries behind it.
TORCH := $(shell grep '^torch==' constraints.txt)

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-machines fuzz recipes analyses compressions check format documents \
    studies bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.development ## Create .venv with everything that development needs

quickstart: .venv/.runtime ## Train, fine-tune and export an encoder in ten minutes, without a download
	@rm -rf quickstart
	@$(BIN)/bertwright quickstart -o quickstart

test: .venv/.development ## Run all tests (warnings are errors)
	$(BIN)/pytest -n 2 --dist worksteal

test-machines: .venv/.development ## Run what computes as on other processors and compilers, and compare
	$(BIN)/python tests/machines --document docs/results/machines.md

fuzz: .venv/.development ## Give the program strange inputs, kills and full disks (half an hour)
	$(BIN)/python -m fuzz inputs --count 100000 --document docs/results/machines.md
	$(BIN)/python -m fuzz kills --count 200 --document docs/results/machines.md
	$(BIN)/python -m fuzz disk --count 10 --document docs/results/machines.md

check: .venv/.development ## Check format, lint, types, imports between rooms, documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/pytest tests/test_documents.py

format: .venv/.development ## Lay the code out and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

recipes: .venv/.development ## Build, count, train, resume and export every recipe, in short
	$(BIN)/bertwright recipes check --quick

analyses: .venv/.development ## Ask every analysis of what was planted for it, and of a toy model
	$(BIN)/bertwright analyse --check --quick

compressions: .venv/.development ## Ask every row of compression of a toy model, in short
	$(BIN)/bertwright compress --check --quick

studies: .venv/.development ## Run every study of a claim and write docs/claims.md (hours; goes on where it was)
	$(BIN)/bertwright study run -o studies --processes 2
	for result in studies/*/result.json; do \
	    folder=docs/results/$${result%/*}; mkdir -p $$folder && cp $$result $$folder; done
	$(BIN)/bertwright study claims docs/results/studies --document docs/claims.md

documents: .venv/.development ## Write into README and docs what commands compute (after make quickstart)
	$(BIN)/python docs/one_token.py
	$(BIN)/python docs/readme.py quickstart

bench: .venv/.development ## Time what a user waits for against its peers, and every recipe against the plain one
	$(BIN)/bertwright bench pretrain --document $(SPEED) $(if $(DATA),--data $(DATA))
	$(BIN)/bertwright bench embed --document $(SPEED)
	$(BIN)/bertwright bench prepare --document $(SPEED)
	$(BIN)/bertwright bench memory --document $(SPEED)
	$(BIN)/bertwright bench attention --document $(SPEED)
	$(BIN)/bertwright bench recipes --document $(SPEED)

clean: ## Remove .venv and every cache
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Two stamps, so that the quickstart does not wait for the tools of development.
.venv/.runtime: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or newer is needed, this is %d.%d: run make PYTHON=..." % sys.version_info[:2])'
	@echo "Installing into .venv: $(TORCH), then bertwright ..." >&2
	@$(PYTHON) -m venv .venv
	@$(PIP) $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	@$(PIP) --constraint constraints.txt --editable '.[huggingface]'
	@touch $@

.venv/.development: .venv/.runtime
	@echo "Installing into .venv: the tools of development ..." >&2
	@$(PIP) --constraint constraints.txt --editable '.[dev]'
	@touch $@
