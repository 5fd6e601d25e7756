PYTHON ?= python3
VENV := .venv
WORKERS ?= 2
CHECK := build/dist-check
BIN := $(VENV)/bin
PACKAGE := $(VENV)/.package
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo quick test lint docs dist dist-check bench clean

$(PACKAGE): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and \"pairsift needs Python 3.11 or newer\")"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e .
	touch $(PACKAGE)

$(STAMP): $(PACKAGE)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(PACKAGE)  ## Make captioned scenes, plant mismatches, and find them.
	$(BIN)/pairsift demo

quick: $(STAMP)  ## Run the tests that take no whole fit, no browser and no other process.
	$(PYTEST)

test: $(STAMP)  ## Run all tests in WORKERS processes of one thread each.
	$(PYTEST) -m ""

lint: $(DOCS_STAMP)  ## Format, lint, types (of the extensions of the site too, which need Sphinx), import rules.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev,docs]"
	touch $(DOCS_STAMP)

docs: $(DOCS_STAMP)  ## Build the site into docs/_build/html; a warning is an error.
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

dist: $(STAMP)  ## Build the source archive and the wheel into dist/.
	rm -rf dist
	$(BIN)/python -m build -q

dist-check: dist  ## Install the wheel with its dependencies into an empty environment, and run the demo there.
	rm -rf $(CHECK) && $(PYTHON) -m venv $(CHECK)
	$(CHECK)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(CHECK)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt dist/*.whl
	cd $(CHECK) && bin/pairsift demo

bench: $(STAMP)  ## Measure the methods' table on Flickr8k; DATA names its folder.
	$(BIN)/python benchmarks/flickr8k_parts.py --data $(DATA)
	$(BIN)/pairsift bench benchmarks/default_encoder.yaml --source $(DATA) --out runs/default_encoder
	$(BIN)/python benchmarks/method_tables.py --table default_encoder --json runs/default_encoder/rows.json --pages docs/results.md README.md

DATA ?= ../shared/flickr8k

clean:
	rm -rf $(VENV) runs build dist docs/_build docs/_staged
