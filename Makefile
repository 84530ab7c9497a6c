# Needs git, make, Python 3.11+ and Java 17+; everything else is installed into .venv and .cache of the checkout.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# An environment with pip alone: the wheel is built without the packages that run it.
BUILD := .cache/build
# Other folders with the package on its path, as Airflow and Spark have it.
IMPORTS := PYTHONPATH=plugins:.
# A test that hangs is stopped with the stacks of all threads; the longest takes about two minutes on two cores.
# Recipes exec it, so that a make that is stopped stops it, and not only a shell around it.
PYTEST := $(BIN)/python -m pytest --timeout=900
# The rungs run beside each other, JOBS at a time, in this order: the quick word on the code first, beside the longest
# wait, then the longest work, and short ones last, so that no core is idle at the end.
RUNGS = e2e unit integration $(CRASH) contracts protocol_model dags properties
SIDE_BY_SIDE = $(BIN)/python -m tools.rungs --jobs $(JOBS) $(RUNGS) -- --timeout=900
JOBS ?= 2
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Tests start hundreds of processes; where Python is told to keep nothing compiled, each would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=
KEEP ?=
UPGRADE ?=
SPARK ?=
REGISTRY ?=
CYCLES ?= 20
SEED ?= 1
MODE ?= append

.PHONY: help setup up down status doctor demo screenshots soak test test-change test-all test-unit test-dags test-integration crash \
	test-airflow check format model model-deep mutants compat bench bench-quick lock-requirements verify-requirements generate verify-generated pin-images monitoring-tools build clean distclean

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## install everything into .venv (about two minutes the first time)

$(READY): requirements.txt requirements-dev.txt
	@test -n "$(PYTHON)" || { echo "error: no python3 on PATH: install Python 3.11 or newer"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: $(PYTHON) is too old: install Python 3.11 or newer, or run make PYTHON=<path>"; exit 1; }
	@test -x $(BIN)/python || { echo "making $(VENV) with $(PYTHON)"; "$(PYTHON)" -m venv $(VENV); } || { \
		echo "error: $(PYTHON) cannot make environments (Debian/Ubuntu: apt-get install python3-venv)"; exit 1; }
	@echo "installing the packages of requirements.txt and requirements-dev.txt (about 600 MB, once)"
	@$(PIP) install --no-input --require-hashes -r requirements.txt -r requirements-dev.txt
	@# Loads run without it, too, and make doctor says when Java is missing.
	@$(IMPORTS) $(BIN)/python -m kafka_ingest prepare-spark || true
	@touch $@

up: $(READY) ## start the sandbox: PostgreSQL, Kafka, Airflow (SPARK=cluster, REGISTRY=1: a Spark cluster, a schema registry, too)
	@$(BIN)/python -m sandbox up $(if $(SPARK),--spark $(SPARK)) $(if $(REGISTRY),--registry)

down: $(READY) ## stop the sandbox; its data stays
	@$(BIN)/python -m sandbox down

status: $(READY) ## show every part of the sandbox
	@$(BIN)/python -m sandbox status

doctor: $(READY) ## check what the machine has to bring
	@$(BIN)/python -m sandbox doctor

demo: $(READY) ## run the main job in a real Airflow, kill it, and count every record (KEEP=1 leaves it running)
	@$(BIN)/python -m sandbox.demo $(if $(KEEP),--keep)

screenshots: $(READY) ## take the pictures of the page in docs/images, light and dark (needs Chromium; minutes)
	@$(BIN)/python -m sandbox.screenshots $(if $(KEEP),--keep)

soak: $(READY) ## kill everything at seeded moments under load, then compare every record, or key (CYCLES=20 SEED=1 MODE=append or upsert)
	@$(BIN)/python -m sandbox.soak --cycles $(CYCLES) --seed $(SEED) --mode $(MODE)

test: $(READY) ## run all tests but the slow ones and the crash tests, on services that they start and stop
	@exec $(SIDE_BY_SIDE) -m "not slow"

test-change: CRASH := crash
test-change: $(READY) ## run make test with the crash tests, what CI does after make check
	@exec $(SIDE_BY_SIDE) -m "not slow"

test-all: CRASH := crash
test-all: $(READY) ## run all tests, also the slow ones
	@exec $(SIDE_BY_SIDE)

test-unit: $(READY) ## run unit and property tests: no services, two minutes
	@exec $(PYTEST) tests/unit tests/properties

test-dags: $(READY) ## load every DAG and check the policies: no services
	@exec $(PYTEST) tests/dags

test-integration: $(READY) ## run contract and integration tests: real Kafka, PostgreSQL, Spark
	@exec $(PYTEST) tests/contracts tests/integration

crash: $(READY) ## kill real processes at every point, cut and stop them, break Kafka and PostgreSQL; run again; count
	@exec $(PYTEST) --durations=15 tests/crash

test-airflow: $(READY) ## press every button and run every kind of run in one running Airflow, with real backfills
	@exec $(PYTEST) tests/e2e

model: ## check the models of the protocol and of current state, and that each guard and rule is needed (needs spin and cc; minutes)
	@"$(PYTHON)" model/check.py

model-deep: $(READY) ## run 20,000 random schedules of the real steps against fakes, other ones each time (half an hour)
	@exec $(PYTEST) --timeout=0 --hypothesis-profile=deep tests/protocol_model

mutants: $(READY) ## remove each guard of the protocol in turn: a test must fail (ONLY=text: guards whose name has it)
	@$(BIN)/python -m tools.mutants $(if $(ONLY),--only "$(ONLY)")

compat: $(READY) ## run DAGs, and a load with kill and retry, on the oldest and newest versions of everything (ONLY=text; docs/compatibility.md)
	@$(IMPORTS) $(BIN)/python -m tools.compat $(if $(ONLY),--only "$(ONLY)")

bench: $(READY) ## measure against peers and limits and write docs/benchmarks.md (hours, 40 GB; needs a quiet machine)
	@$(IMPORTS) $(BIN)/python -m tests.benchmarks full
	@$(IMPORTS) $(BIN)/python -m tests.benchmarks.page

bench-quick: $(READY) ## measure a load of 1 M records, the limits of the machine and a start (minutes)
	@$(IMPORTS) $(BIN)/python -m tests.benchmarks quick

check: $(READY) verify-requirements verify-generated ## lint, types, import rules, generated files: what CI checks first
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(IMPORTS) $(BIN)/lint-imports --no-cache > .mypy_cache/lint-imports.log 2>&1 || { \
		cat .mypy_cache/lint-imports.log; exit 1; }
	@tail -1 .mypy_cache/lint-imports.log
	@$(BIN)/python tools/house.py

format: $(READY) ## format the code and sort its imports
	@$(BIN)/ruff check --fix --select I .
	@$(BIN)/ruff format .

lock-requirements: $(READY) ## write requirements*.txt and constraints.txt of requirements*.in (UPGRADE=package: its newest version)
	@$(BIN)/python tools/requirements_lock.py lock $(if $(UPGRADE),--upgrade-package "$(UPGRADE)")

verify-requirements: $(READY)
	@$(BIN)/python tools/requirements_lock.py verify

generate: $(READY) ## write the reference pages from the model of the pipeline file, the metrics and the results of benchmarks
	@$(IMPORTS) $(BIN)/python -m tools.reference
	@$(IMPORTS) $(BIN)/python -m tests.benchmarks.page
	@$(IMPORTS) $(BIN)/python -m tools.compat --page

verify-generated: $(READY)
	@$(IMPORTS) $(BIN)/python -m tools.reference --check
	@$(IMPORTS) $(BIN)/python -m tests.benchmarks.page --check
	@$(IMPORTS) $(BIN)/python -m tools.compat --check

pin-images: $(READY) ## write the digests of all images into docker-compose.yaml and its Dockerfiles (needs docker buildx and the registries)
	@$(BIN)/python tools/pin_images.py

# What the tests of monitoring/ ask: Prometheus from Debian's package, which is unpacked and not installed, so that no service
# starts, and its StatsD exporter, which only Go brings. Without one of them its tests are skipped, and say so.
MONITORING := .cache/monitoring
STATSD_EXPORTER := github.com/prometheus/statsd_exporter@v0.28.0

monitoring-tools: ## fetch Prometheus (needs Debian or Ubuntu) and its StatsD exporter (needs Go) for the tests of alerts
	@mkdir -p $(MONITORING)/usr/bin
	@test -x $(MONITORING)/usr/bin/promtool || { cd $(MONITORING) && apt-get download --quiet prometheus && \
		dpkg-deb --extract prometheus_*.deb . && rm prometheus_*.deb; }
	@test -x $(MONITORING)/usr/bin/statsd_exporter || ! command -v go > /dev/null || \
		GOBIN="$(CURDIR)/$(MONITORING)/usr/bin" go install $(STATSD_EXPORTER)

build: ## build the wheel into dist/ (needs no make setup)
	@test -x $(BUILD)/bin/python || "$(PYTHON)" -m venv $(BUILD)
	@$(BUILD)/bin/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

clean: ## stop the sandbox, delete its data and all caches of tools
	@if test -x $(BIN)/python; then $(BIN)/python -m sandbox down --delete; fi
	@rm -rf dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

distclean: clean ## delete downloads and .venv, too
	@rm -rf $(VENV) .cache
