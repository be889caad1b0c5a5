# make demo    set up, then run the example workflows and compare with plain vLLM
# make test    set up, then run all tests
# make check   set up, then lint, types, layer contracts and the fast tests
# make setup   only the set-up: .venv, the package with an engine, the embedded model
# make clean   remove .venv and what tools left behind; the model stays in the cache
#
# PYTHON=/path/to/python3.11   the interpreter that .venv is made from
# EXTRA=gpu                    on a machine with an NVIDIA GPU
# JOBS=1                       tests at a time, of which two may hold five engines of 3 GB

PYTHON ?= python3
EXTRA ?= cpu
JOBS ?= 2

.PHONY: demo test check setup clean

demo: setup
	.venv/bin/grape demo

test: setup
	.venv/bin/python -m pytest -n $(JOBS) --dist loadgroup --durations=15

check: setup
	scripts/check

setup:
	@$(PYTHON) scripts/setup --extra $(EXTRA)

clean:
	rm -rf .venv build dist out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
