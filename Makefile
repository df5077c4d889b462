# One word per chore, the same here and in CI. Every target makes .venv by itself on a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Two test processes of one thread each, or one of two: never more threads than cores.
export OMP_NUM_THREADS ?= 1
# Real images for tests and benchmarks; empty, and so without effect, if there are none.
export HEBBSEG_DATA ?= $(realpath ../shared/data)

.PHONY: demo test check format bench docs clean

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,tensorboard,export,cluster]'
	touch $(READY)

demo: $(READY)          ## built-in data, no download
	$(BIN)/hebbseg demo

test: $(READY)          ## every test, with coverage; see CONTRIBUTING.md for what is skipped
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov=hebbseg --cov-report=term:skip-covered

check: $(READY)         ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)         ## ratios measured side by side in one run, written to benchmarks/bench.csv
	OMP_NUM_THREADS=$$(nproc) $(BIN)/python -m benchmarks

docs: $(READY)          ## writes docs/options.md from the settings and runs the examples in the docstrings
	$(BIN)/python -m docs

clean:
	rm -rf $(VENV) demo build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
