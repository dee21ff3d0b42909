# Every habit is one command; continuous integration runs the same ones.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_WORKERS ?= 2

.PHONY: help install demo app test test-all fuzz lint format types imports check docs bench clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: setup.cfg constraints.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[test,dev]'
	touch $@

install: $(VENV)/.installed  ## create .venv and install the pinned dependencies

demo: install  ## answer questions about the shipped pictures with the embedded models
	$(BIN)/python examples/demo.py

app: install  ## serve the page where you ask about your own pictures; ARGS are its options
	$(BIN)/python app.py $(ARGS)

# What measures time runs by itself afterwards; where ARGS choose nothing of it, pytest says so with status 5.
define pytest
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal -m "not timing$(1)" $(ARGS)
	$(BIN)/python -m pytest -m "timing$(1)" $(ARGS) || test $$? -eq 5
endef

test: $(VENV)/.installed-test  ## run the tests but the slow ones; ARGS are pytest's
	$(call pytest, and not slow)

test-all: $(VENV)/.installed-test  ## run all tests: training, notebook, Ray, wheel and floors of the weights too
	$(call pytest)

fuzz: $(VENV)/.installed-test  ## campaigns of Hypothesis (FUZZ_EXAMPLES of each property) and, on Linux, Atheris (FUZZ_SECONDS a reader)
	HYPOTHESIS_PROFILE=campaign $(BIN)/python -m pytest tests/security --timeout 7200 --hypothesis-show-statistics $(ARGS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[fuzz]'
	test "$$(uname)" != Linux || $(BIN)/python tests/security/fuzz_readers.py --seconds $${FUZZ_SECONDS:-60}

lint: $(VENV)/.installed-test  ## ruff, formatting, prompt banks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m codevqa.writing.lint

format: $(VENV)/.installed-test  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-test  ## strict mypy
	$(BIN)/mypy -p codevqa
	$(BIN)/mypy -p training
	$(BIN)/mypy app.py examples benchmarks docs tests

imports: $(VENV)/.installed-test  ## what may import what
	$(BIN)/lint-imports

check: lint types imports  ## lint, types and imports

docs: $(VENV)/.installed-test  ## write the generated pages of docs/
	$(BIN)/python docs/generate.py

bench: install  ## cold start, warm latency and memory of the embedded models
	$(BIN)/python benchmarks/latency.py

clean:  ## remove what was installed and built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
