# Everything from a fresh clone: `make demo` and `make test` set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all lint docs bench soundness wheel clean

demo: $(READY)
	$(BIN)/warpcert certify --count 20 --out runs/demo
	$(BIN)/warpcert report runs/demo --out runs/demo/report.html

test: lint
	$(BIN)/python -m pytest -n 2

test-all: lint
	$(BIN)/python -m pytest -n 2 -m 'slow or not slow'

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/mkdocs build --strict

soundness: $(READY)
	$(BIN)/python -m benchmarks.soundness
	$(BIN)/python -m benchmarks.soundness_exact
	$(BIN)/python -m benchmarks.soundness_inverse
	$(BIN)/python -m benchmarks.soundness_products

bench: $(READY)
	$(BIN)/python -m benchmarks.foundation

wheel: $(READY)
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) runs dist site
