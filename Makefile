# demo and test install what they need first (scripts/setup.sh says what) and are quick the second time.
.PHONY: demo test test-long bench lint setup clean

PYTHON := .venv/bin/python
# A cluster needs root. Nothing of root's stays behind in the tree.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo env PYTHONDONTWRITEBYTECODE=1)

demo: setup
	@$(AS_ROOT) .venv/bin/hpkit sandbox demo

test: setup
	@$(PYTHON) -m pytest -m "not long"

test-long: setup
	@$(PYTHON) -m pytest

bench: setup
	@$(PYTHON) -m benchmarks

lint: setup
	@$(PYTHON) -m pytest --durations=0 -q tests/test_lint.py tests/test_imports.py

setup:
	@scripts/setup.sh

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
