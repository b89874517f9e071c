# The few verbs, the same on a laptop and in CI. `make` alone lists them.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
SHARED ?= ../shared
LOCK   := .venv-lock/bin/pip-compile -q --strip-extras --no-header --no-annotate \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
.DEFAULT_GOAL := help

help: ## List the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements/runtime.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements/dev.txt
	@touch $@

install: $(VENV)/.runtime ## Set up .venv with what answering questions needs

demo: $(VENV)/.runtime ## Answer real questions from the example manual, offline
	$(BIN)/specrag demo

test: $(VENV)/.dev ## Run the tests
	$(BIN)/python -m pytest

test-triton: $(VENV)/.dev ## Hold the remote session against a real Triton server
	tests/triton_server/setup.sh
	$(BIN)/python -m pytest tests/test_triton.py

test-openvino: $(VENV)/.dev ## Run a static INT8 drafter through the OpenVINO provider, in its own environment
	tests/openvino_box/run.sh $(SHARED)/models/drafter-minilm-l3 CPU \
	  $(SHARED)/data/new_wiki_v1.0.json 1500

test-qnn: $(VENV)/.dev ## Compile and run a drafter with Qualcomm's NPU emulator, in its own environment
	tests/qnn_box/run.sh $(SHARED)/models/drafter-minilm-l3 30

test-arm64: $(VENV)/.dev ## Ask 50 questions as a Raspberry Pi 4 and 5 would, under emulation
	tests/arm64_box/run.sh models/drafter-minilm-l4 50

fuzz: $(VENV)/.dev ## Feed every reader 2,000 more mutated files
	$(BIN)/python -m tests.fuzz_readers --inputs 2000

lint: $(VENV)/.dev ## Style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev ## Measure both routes, interleaved on the same questions
	$(BIN)/python -m benchmarks.latency

lock: ## Pin all dependencies anew, from pyproject.toml
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install -q --disable-pip-version-check pip-tools
	$(LOCK) --extra cpu --extra dev --extra export --extra ocr \
	  -c requirements/pins.txt -o requirements/dev.txt pyproject.toml
	sed -i 's/^\(torch==[0-9.]*\)+cpu/\1/' requirements/dev.txt
	$(LOCK) --extra cpu -c requirements/dev.txt -o requirements/runtime.txt pyproject.toml

clean: ## Remove the environment and caches
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info

.PHONY: help install demo test test-triton test-openvino test-qnn test-arm64 fuzz lint bench lock clean
