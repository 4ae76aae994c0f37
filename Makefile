# `make help` is the table of contents.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
# Of the installed packages only the ones in requirements.lock, by hash, whatever installs them.
LOCKED := --quiet --require-hashes --no-deps --requirement requirements.lock
PYTEST := $(BIN)/python -m pytest
# Its theme advertises a successor in each build.
export NO_MKDOCS_2_WARNING := 1
# The tests that need no JVM, no local world and no browser.
SEEDED := $(if $(SEED),TESTS_SEED=$(SEED))
FAST := not nightly and not spark and not kafka and not e2e and not browser

.DEFAULT_GOAL := help
.PHONY: help demo demo-ab demo-late demo-pipeline test test-fast test-nightly test-versions bench lint fix typecheck lock reference site pictures jars world clean

help: ## Show what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: java $(VENV)/.installed ## The whole story on real Kafka, S3, Delta and orders (3 to 5 minutes)
	@$(BIN)/savepoints demo

demo-ab: java $(VENV)/.installed ## Two versions from one state, compared, and one promoted (3 to 5 minutes)
	@$(BIN)/savepoints demo ab

demo-late: java $(VENV)/.installed ## Last year's orders arrive today, and are merged (3 to 5 minutes)
	@$(BIN)/savepoints demo late

demo-pipeline: java $(VENV)/.installed ## Bronze, silver and gold: late orders merged through all three (5 to 8 minutes)
	@$(BIN)/savepoints demo pipeline

test: java $(VENV)/.installed ## What a change needs (10 minutes); SEED=1 draws by that number
	@$(SEEDED) $(BIN)/python -m tests.tier change

test-fast: $(VENV)/.installed ## Of these, the ones without a JVM
	$(PYTEST) -m "$(FAST)" -n 2

test-nightly: java $(VENV)/.installed ## Everything, or PART="matrix-1 e2e-2 ..." of it (each within an hour)
	@$(SEEDED) $(BIN)/python -m tests.tier nightly $(PART)

test-versions: java $(VENV)/.installed ## Spark 3.5 to 4.2, each in an environment of its own, or VERSIONS="3.5 4.0"
	$(BIN)/python -m tests.versions $(VERSIONS)

bench: java $(VENV)/.installed ## Time and bytes of each measure, beside Spark's own; see docs/benchmarks.md
	$(BIN)/python -m benchmarks

lint: $(VENV)/.installed ## Style, types, layers, dependencies, links of the documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/lint-imports --no-cache --config infra/lint/run_time_imports.toml
	$(BIN)/deptry savepoints spark_jobs benchmarks
	$(BIN)/mkdocs build --strict

fix: $(VENV)/.installed ## Let ruff correct what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(VENV)/.installed ## Types only
	$(BIN)/mypy

lock: ## Rebuild requirements.lock (needs uv)
	uv pip compile pyproject.toml --extra demo --group dev --universal --generate-hashes \
	  --no-emit-index-url --custom-compile-command "make lock" --output-file requirements.lock

reference: $(VENV)/.installed ## Write the pages of docs/reference that come from the code
	$(BIN)/python -m tests.reference

site: $(VENV)/.installed ## Build the site of the documents into build/site
	$(BIN)/mkdocs build --strict

pictures: $(VENV)/.installed ## Take the pictures of docs/img in headless Chromium
	$(PYTEST) -m browser -k pictures_for_the_documents tests/ui
	cp build/screenshots/page-light.png build/screenshots/page-dark.png \
	  build/screenshots/report-light.png build/screenshots/report-dark.png docs/img/

jars: java $(VENV)/.installed ## Download the jars of Spark, Kafka and S3, and say where
	@$(BIN)/python -m savepoints.local jars

world: java $(VENV)/.installed ## Run Kafka and S3 on free ports until Ctrl-C
	@$(BIN)/python -m savepoints.local up

clean: ## Remove the virtual environment and what tools leave behind
	rm -rf $(VENV) .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: java
# Before anything is downloaded: this part of the project needs nothing but Python.
java:
	@$(PYTHON) -m savepoints.local java

$(VENV)/.installed: requirements.lock pyproject.toml
	@echo "installing into $(VENV), which takes two or three minutes"
ifdef UV
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	@$(UV) pip install --python $(BIN)/python $(LOCKED)
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
else
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check $(LOCKED)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --editable .
endif
# What everything with a JVM needs once; whatever needs none does without.
	-@$(BIN)/python -m savepoints.local jars
	@touch $@
