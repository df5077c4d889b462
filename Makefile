# The targets are the same here and in CI. Each creates .venv on a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# make test runs two processes with one thread each.
export OMP_NUM_THREADS ?= 1
# Folder of the real data sets for tests and benchmarks; empty if there is none.
export HEBBSEG_DATA ?= $(realpath ../shared/data)

.PHONY: demo test coverage check format bench docs fuzz faults soak scale clean

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[dev,docs,tensorboard,export,cluster,zarr]'
	touch $(READY)

demo: $(READY)          ## generated images, no download; demo/report.html
	$(BIN)/hebbseg demo

test: $(READY)          ## all tests; CONTRIBUTING.md lists those that may be skipped
	$(BIN)/python -m pytest -n 2 --dist worksteal

coverage: $(READY)      ## all tests, with the lines they do not reach
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov=hebbseg --cov-report=term-missing:skip-covered

check: $(READY)         ## lint, format, types, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

format: $(READY)        ## fix lint and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)         ## speed and memory ratios, written to benchmarks/bench.csv
	OMP_NUM_THREADS=$$(nproc) $(BIN)/python -m benchmarks

docs: $(READY)          ## generated pages and notebooks, examples in the docstrings, then the site: docs/_build/html/index.html
	$(BIN)/python -m docs
	$(BIN)/python -m sphinx -W --keep-going -n -q docs docs/_build/html

fuzz: $(READY)          ## 20,000 mutated files through every reader; SEED=1 draws others
	$(BIN)/python -m tests.stress.fuzz --cases 20000 --seed $(or $(SEED),0)

faults: $(READY)        ## 200 faults in the middle of commands (SEED=1 draws others), then a full disk at every write
	$(BIN)/python -m tests.stress.faults --cases 200 --seed $(or $(SEED),0)
	$(BIN)/python -m tests.stress.full_disk

soak: $(READY)          ## an hour of random commands on random data; SEED=1, MINUTES=2
	$(BIN)/python -m tests.stress.soak --minutes $(or $(MINUTES),60) --seed $(or $(SEED),0)

scale: $(READY)         ## time and memory against size, up to 50,000 files and 5,000 runs
	$(BIN)/python -m tests.stress.scale

clean:
	rm -rf $(VENV) demo build dist docs/_build *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
