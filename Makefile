# `make demo` and `make test` start from a fresh clone: they create .venv and install into it.
# Run `make` or `make help` for the list of targets.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

# Lines of src/gossamer that the whole suite must execute, in per cent.
COVERAGE_MINIMUM ?= 92

# Without bytecode every worker of the tests compiles all tests, and every process all modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-fleet test-others quick coverage lint format types wheel docs bench hooks check-hooks clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 16

demo: .venv/runtime ## Compare methods on a small data set and show a table (about a minute)
	$(BIN)/gossamer compare --out runs/demo

test: lint types ## Run everything that CI runs: linting, types, all tests, wheel and sdist
	$(MAKE) --jobs=2 test-fleet test-others
	$(MAKE) wheel

# Fleet and cluster tests follow the clock and mostly wait, so the others run beside them with a
# lower priority. The output of the first is shown when they have ended.
test-fleet: .venv/dev
	@COVERAGE_FILE=.coverage.fleet $(BIN)/python -m pytest -n 2 --dist loadfile $(TRACE) \
	  -m "fleet or cluster" > .test-fleet.log 2>&1; status=$$?; cat .test-fleet.log; exit $$status

test-others: .venv/dev
	COVERAGE_FILE=.coverage.others nice -n 19 $(BIN)/python -m pytest -n 3 --dist worksteal $(TRACE) \
	  -m "not fleet and not cluster"

quick: .venv/dev ## Run the quick tests (about a minute)
	$(BIN)/python -m pytest -n 2 -m "not slow and not data"

# Tracing adds more than half to the time of the suite, so `make test` does without it.
coverage: .venv/dev ## Run all tests and show which lines they execute; fail below the minimum
	rm -f .coverage .coverage.*
	$(MAKE) --jobs=2 test-fleet test-others TRACE="--cov --cov-report="
	$(BIN)/coverage combine --quiet
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
	rm -rf .venv dist build site .coverage .coverage.* .test-fleet.log .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	@echo "making a virtual environment in .venv"
	@$(PYTHON) -m venv .venv

.venv/runtime: .venv/bin/python pyproject.toml constraints.txt hatch_build.py $(wildcard src/gossamer/backend/kernels*.[ch])
	@echo "installing gossamer into .venv, once; torch is a download of several 100 MB"
	@$(PIP) --editable .
	@touch $@

.venv/dev: .venv/runtime
	$(PIP) --editable ".[dev,docs,ray,peer,tensorboard,wandb,mlflow,dataframe,hf]"
	@touch $@
