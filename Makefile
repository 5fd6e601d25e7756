PYTHON ?= python3
VENV := .venv
WORKERS ?= 2
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and \"pairsift needs Python 3.11 or newer\")"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)  ## Make captioned scenes, plant mismatches, train, and find them.
	$(BIN)/pairsift demo

test: $(STAMP)  ## Run the tests in WORKERS processes of one thread each.
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

lint: $(STAMP)  ## Format, lint, types, import rules.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)  ## Measure on Flickr8k; DATA names its folder.
	$(BIN)/python benchmarks/flickr8k.py --data $(DATA) --options precision=bf16 --pages README.md docs/results.md

DATA ?= ../shared/flickr8k

clean:
	rm -rf $(VENV) runs build
