# Every habit is one command; continuous integration runs the same ones.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_WORKERS ?= 2

.PHONY: help install demo app test test-all mutations bench fuzz smoke lint format types imports check docs screenshot tour site lock audit release clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Without bytecode every start takes twice as long, and programs started later read what these commands wrote.
unexport PYTHONDONTWRITEBYTECODE

# requirements/ holds exact versions and the hashes of their files; what it does not name is not installed.
# -P: the egg-info of this folder is no installed package.
PIP_INSTALL = -P -m pip install --quiet --disable-pip-version-check --no-deps
LOCKED = $(PIP_INSTALL) --no-compile --require-hashes
TORCH := requirements/torch-cpu.txt requirements/torch.txt

# install_locked PYTHON, FILES: installs torch into the environment of PYTHON (a build for CPUs where the index has one), then the
# FILES of requirements/.
define install_locked
	@$(1) $(LOCKED) -r requirements/torch-cpu.txt 2>$(dir $(1))torch-cpu.log || \
		{ echo "No CPU build of torch is offered here; the package index's own follows."; $(1) $(LOCKED) -r requirements/torch.txt; }
	$(1) $(LOCKED) $(2:%=-r requirements/%.txt)
endef

$(VENV)/.installed: setup.cfg pyproject.toml $(TORCH) requirements/base.txt requirements/demo.txt
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(call install_locked,$(BIN)/python,base demo)
	$(BIN)/python $(PIP_INSTALL) --no-build-isolation --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed requirements/smoke.txt requirements/test.txt
	$(BIN)/python $(LOCKED) -r requirements/smoke.txt -r requirements/test.txt
	touch $@

$(VENV)/.installed-site: $(VENV)/.installed-test requirements/site.txt
	$(BIN)/python $(LOCKED) -r requirements/site.txt
	touch $@

$(VENV)/.installed-release: $(VENV)/.installed-site requirements/release.txt
	$(BIN)/python $(LOCKED) -r requirements/release.txt
	touch $@

install: $(VENV)/.installed  ## create .venv and install the locked dependencies

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

mutations: $(VENV)/.installed-test  ## take single guards out and see a test fail; ARGS are words of files or functions
	$(BIN)/python tests/security/mutations.py $(ARGS)

BASE ?= HEAD~1
bench: $(VENV)/.installed  ## measure beside a commit: make bench BASE=COMMIT [LM=FOLDER] [RETRIEVER=FOLDER]; ARGS are benchmarks/bench.py's
	PYTHONPATH=$(CURDIR) $(BIN)/python benchmarks/bench.py $(BASE) $(if $(LM),--language-model $(LM)) $(if $(RETRIEVER),--retriever $(RETRIEVER)) $(ARGS)

# These need no torch, of which an interpreter other than 3.11 may find no build for CPUs. They are what may differ between
# interpreters: programs and their sandbox, signatures, files, pages.
SMOKE := answer_json datasets engine images metrics pages plan sandbox signature
smoke: ## try another Python, without torch: make smoke PYTHON=python3.13
	$(PYTHON) -m venv --clear $(VENV)-smoke
	$(VENV)-smoke/bin/python $(LOCKED) -r requirements/base.txt -r requirements/smoke.txt
	PYTHONPATH=$(CURDIR) $(VENV)-smoke/bin/python -m pytest -n $(PYTEST_WORKERS) -p no:cacheprovider -m "not slow and not timing" \
		$(SMOKE:%=tests/test_%.py) tests/security/test_sandbox_attacks.py

fuzz: $(VENV)/.installed-test  ## campaigns of Hypothesis, FUZZ_EXAMPLES of each property
	HYPOTHESIS_PROFILE=campaign $(BIN)/python -m pytest tests/security --timeout 7200 --hypothesis-show-statistics $(ARGS)

lint: $(VENV)/.installed-test  ## ruff and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-test  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-test  ## strict mypy
	$(BIN)/mypy -p codevqa
	$(BIN)/mypy app.py examples benchmarks docs requirements tests

imports: $(VENV)/.installed-test  ## what may import what
	$(BIN)/lint-imports

check: lint types imports  ## lint, types and imports

docs: $(VENV)/.installed-test  ## write the generated pages of docs/
	$(BIN)/python docs/generate.py

screenshot: $(VENV)/.installed-test  ## make the answer that the README begins with, and its picture; needs Chromium
	$(BIN)/python docs/picture.py

tour: $(VENV)/.installed-test  ## run docs/tour.ipynb and keep what it prints
	$(BIN)/python docs/tour.py

site: $(VENV)/.installed-site  ## build the pages of docs/ as a site, in build/site
	$(BIN)/python docs/build_site.py

lock: $(VENV)/.installed-release  ## write requirements/ anew; ARGS are uv's, as in ARGS=--upgrade
	$(BIN)/python requirements/lock.py $(ARGS)

audit: $(VENV)/.installed-release  ## look the locked versions up among known vulnerabilities
	$(BIN)/python requirements/audit.py

TRIED := build/tried
release: $(VENV)/.installed-release  ## build, try both files in an empty environment, SBOM, licences, audit
	rm -rf dist build
	$(BIN)/python -m build --no-isolation
	$(PYTHON) -m venv $(TRIED)
	$(call install_locked,$(TRIED)/bin/python,base)
	for kind in --no-binary --only-binary; do \
		$(TRIED)/bin/python $(PIP_INSTALL) --no-build-isolation --force-reinstall --no-index --find-links dist $$kind codevqa codevqa && \
		$(TRIED)/bin/python -I requirements/offline.py || exit 1; \
	done
	$(TRIED)/bin/python $(LOCKED) -r requirements/demo.txt
	$(TRIED)/bin/python -P -m pip check
	$(BIN)/cyclonedx-py environment --output-reproducible --output-file dist/sbom.cdx.json $(TRIED)/bin/python
	{ echo "# Licences"; echo; echo "Of what \`pip install '.[demo]'\` brings, as the packages state them; written by \`make release\`."; \
		echo "PyPI's torch for Linux brings NVIDIA's libraries besides, under NVIDIA's own licences."; echo; \
		$(BIN)/pip-licenses --python $(TRIED)/bin/python --format=markdown --no-version --ignore-packages codevqa; } >dist/licences.md
	$(BIN)/python requirements/audit.py || test $$? -eq 2

clean:  ## remove what was installed and built
	rm -rf $(VENV) $(VENV)-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
