# The two commands of the README: `make demo` and `make test`. Each sets itself up from nothing, in .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test quick lint types wheel docs bench clean

demo: .venv/runtime
	$(BIN)/gossamer compare --out runs/demo

test: lint types
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not fleet and not cluster"
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "fleet or cluster"  # they follow the clock: beside little else
	$(MAKE) wheel

quick: .venv/dev
	$(BIN)/python -m pytest -n 2 -m "not slow and not data"

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev
	$(BIN)/mypy

# A wheel that builds, installs elsewhere, and runs.
wheel: .venv/dev
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist . > /dev/null
	$(BIN)/python tests/support/check_wheel.py dist

# The documentation, to be read from site/index.html without a network.
docs: .venv/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

bench: .venv/dev
	$(BIN)/python benchmarks/speed.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/runtime: .venv/bin/python pyproject.toml constraints.txt hatch_build.py src/gossamer/backend/kernels.c
	@echo "installing gossamer into .venv (once; torch is large)"
	$(PIP) --editable .
	@touch $@

.venv/dev: .venv/runtime
	$(PIP) --editable ".[dev,docs,ray,peer,track]"
	@touch $@

clean:
	rm -rf .venv dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
