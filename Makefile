# Two commands do all the set-up: `make study` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
TORCH_BIN := .venv-torch/bin
# published.yaml and scoring.yaml beside a paper's studies are its numbers, and how ours are scored.
OUR_STUDIES := $(patsubst %,experiments/ours/%.yaml,corpus formulations memory moirai-forms serving)
OUR_SWEEPS := congestion sensitivity scaling
PAPER_STUDIES := $(filter-out %/published.yaml %/scoring.yaml,$(sort $(wildcard experiments/papers/*/*.yaml)))
TORCH_TESTS = $(shell grep -rl "mark.torch" tests --include="test_*.py")
PACKAGES := instances formulations solvers experiments
# A folder that is added there or removed has to be linked again.
FOLDERS := experiments experiments/facade
# Byte-code of what is loaded is made then: of all that is installed it takes 30 of 53 CPU s.
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt --config-settings editable_mode=strict
# The strict editable install, which mypy needs, links each file; folders in their place show new files.
LINK_FOLDERS = for tree in build/__editable__.placegap-*/placegap; do rm -rf "$$tree"/{instances,formulations,solvers} "$$tree"/experiments/*/; \
	ln -s "$(CURDIR)"/{instances,formulations,solvers} "$$tree"; for folder in experiments/*/; do \
	case $$folder in *facade*|*pycache*) ;; *) ln -s "$(CURDIR)/$${folder%/}" "$$tree/experiments";; esac; done; done
SHELL := /bin/bash
export NUMBA_CACHE_DIR ?= $(CURDIR)/.venv/numba-cache
# Tests start some 150 programs: without byte-code each compiles all modules that it loads.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install study studies test test-torch test-deep bench docs dist pages pages-check lint types clean

help:
	@echo "make study      install into .venv and run the quickstart study"
	@echo "make studies    the papers' tables again (more than an hour; SMOKE=1: their smallest forms, minutes)"
	@echo "make test       install, then ruff, mypy and the tests (COVERAGE=1: what they cover)"
	@echo "make test-torch tests with PyTorch, in a venv of its own (2 GB, under 6 minutes)"
	@echo "make test-deep  thousands of random instances, bounds of arrays checked (hours)"
	@echo "make bench      benchmarks, never part of the tests"
	@echo "make docs       the site, in build/site"
	@echo "make dist       a wheel and an sdist in dist, checked for a package index; nothing is uploaded"
	@echo "make pages      what is made from results and registrations anew (pages-check: is it up to date?)"
	@echo "make clean      remove .venv, build and results"

.venv/.ready: Makefile pyproject.toml setup.py constraints.txt $(FOLDERS)
	@echo "installing placegap into .venv (660 MB, once)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	rm -rf build/__editable__.*
	$(PIP_INSTALL) -e '.[plots]'
	@$(LINK_FOLDERS)
	@touch $@

.venv/.dev: .venv/.ready
	@echo "installing the tools for tests into .venv (650 MB more, once)"
	$(PIP_INSTALL) -e '.[dev]'
	@$(LINK_FOLDERS)
	@touch $@

.venv-torch/.ready: Makefile pyproject.toml setup.py constraints.txt $(FOLDERS)
	@echo "installing placegap with PyTorch into .venv-torch (2 GB, once)"
	test -x $(TORCH_BIN)/python || $(PYTHON) -m venv .venv-torch
	$(subst $(BIN),$(TORCH_BIN),$(PIP_INSTALL)) -e '.[torch,onnx,gguf,measured,plots]' accelerate onnxruntime pytest pytest-xdist
	@$(LINK_FOLDERS)
	@touch $@

install: .venv/.dev

study: .venv/.ready
	$(BIN)/placegap study experiments/quickstart.yaml

# What is in a log is not run again, so this goes on where it stopped.
studies: .venv/.ready
	set -e; for study in $(PAPER_STUDIES) $(OUR_STUDIES); do $(BIN)/placegap study $$study --module placegap.experiments.research.stand_ins $(if $(SMOKE),--smoke); done
	set -e; for sweep in $(OUR_SWEEPS); do $(BIN)/python -m placegap.experiments.research.sweeps $$sweep $(if $(SMOKE),--smoke); done

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

# mypy takes one core for a minute: it runs beside the tests, and what it finds is shown again last.
test: lint
	@mkdir -p build
	@($(BIN)/mypy >build/types.txt 2>&1; typed=$$?; cat build/types.txt; exit $$typed) & types=$$!; \
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not deep and not torch" $(if $(COVERAGE),--cov=placegap --cov-report=term:skip-covered); tested=$$?; \
	wait $$types || { cat build/types.txt; echo "mypy found errors"; exit 1; }; \
	exit $$tested

test-torch: .venv-torch/.ready
	$(TORCH_BIN)/pytest -n 2 --dist loadfile -m "torch and not deep" $(TORCH_TESTS)

docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

dist: .venv/.dev
	rm -rf dist
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt 'twine>=6'
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

pages: .venv/.dev
	$(BIN)/python docs/site/methods.py
	$(BIN)/python docs/site/equations.py
	$(BIN)/python -m placegap.experiments.research.pages
	$(BIN)/python -m placegap.experiments.research.papers --pages --pairs

# Pictures are left out: other versions of fonts draw them differently.
MADE = README.md docs/*.md docs/course/*.md docs/papers/*.md experiments/papers/README.md experiments/papers/*/pairs.csv solvers/core/method_homes.py
pages-check: .venv/.dev
	@before=$$(cat $(MADE) | cksum); $(MAKE) --no-print-directory pages && test "$$(cat $(MADE) | cksum)" = "$$before" || \
	{ git diff --stat -- $(MADE); echo "make pages has changed them: commit that"; exit 1; }

# Kernels check their indexes here. They are kept apart from those that do not.
test-deep: export NUMBA_BOUNDSCHECK := 1
test-deep: .venv/.dev .venv-torch/.ready
	$(BIN)/pytest -n 2 -m "deep and not torch"
	$(TORCH_BIN)/pytest -n 2 -m "deep and torch" $(TORCH_TESTS)

bench: .venv/.dev
	$(BIN)/python -m placegap.experiments.research.bench

clean:
	rm -rf .venv .venv-torch build dist results bench-results *.egg-info
