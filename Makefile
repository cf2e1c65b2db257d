# `make demo` and `make test` start from a fresh clone: they create .venv and install into it.
# Run `make` or `make help` for the list of targets.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Lines of src/gossamer that the whole suite must execute, in per cent.
COVERAGE_MINIMUM ?= 92

.DEFAULT_GOAL := help
.PHONY: help demo test quick coverage lint format types wheel docs bench hooks check-hooks clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 16

demo: .venv/runtime ## Compare methods on a small data set and show a table (about a minute)
	$(BIN)/gossamer compare --out runs/demo

# Fleet and cluster tests depend on the clock, so they run after the others, with fewer workers.
test: lint types ## Run everything that CI runs: linting, types, all tests, coverage, wheel and sdist
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not fleet and not cluster" --cov --cov-report=
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "fleet or cluster" --cov --cov-append --cov-report=
	$(MAKE) coverage
	$(MAKE) wheel

quick: .venv/dev ## Run the quick tests (about a minute)
	$(BIN)/python -m pytest -n 2 -m "not slow and not data"

coverage: .venv/dev ## Show the coverage of the last `make test`; fail if it is below the minimum
	$(BIN)/coverage report --fail-under=$(COVERAGE_MINIMUM)

lint: .venv/dev ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/dev ## Format the code and apply the linter's safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: .venv/dev ## Check the types
	$(BIN)/mypy

wheel: .venv/dev ## Build wheel and sdist, install each elsewhere (the sdist without a compiler), and run them
	rm -rf dist
	$(BIN)/python -m build --outdir dist . > /dev/null
	$(BIN)/python tests/support/check_wheel.py dist
	$(BIN)/python tests/support/check_sdist.py dist

docs: .venv/dev ## Build the documentation; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

bench: .venv/dev ## Measure speed as ratios within one run (needs MNIST)
	$(BIN)/python benchmarks/speed.py

hooks: .venv/dev ## Install the git hooks of .pre-commit-config.yaml in this clone
	$(BIN)/pre-commit install

check-hooks: .venv/dev ## Run the git hooks on all files
	$(BIN)/pre-commit run --all-files

clean: ## Delete .venv and everything that was built
	rm -rf .venv dist build site .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/runtime: .venv/bin/python pyproject.toml constraints.txt hatch_build.py src/gossamer/backend/kernels.c
	@echo "installing gossamer into .venv (once; torch is large)"
	$(PIP) --editable .
	@touch $@

.venv/dev: .venv/runtime
	$(PIP) --editable ".[dev,docs,ray,peer,tensorboard,wandb,mlflow,dataframe,hf]"
	@touch $@
