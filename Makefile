# demo and test install what they need first (scripts/setup.sh says what) and are quick the second time.
# The tests on a real Slurm run on this machine's own release in `test`, on every release in `test-slurm-all`, each in a
# root of its own (scripts/release.sh); `smoke` is one short round on the others.
.PHONY: demo test test-slurm-all test-long smoke bench lint setup clean

PYTHON := .venv/bin/python
# A cluster needs root. Nothing of root's stays behind in the tree. sudo forgets the environment.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || \
	echo 'sudo env PYTHONDONTWRITEBYTECODE=1 HPKIT_ROOTS="$$HPKIT_ROOTS" HPKIT_MIRROR="$$HPKIT_MIRROR"')

demo: setup
	@$(AS_ROOT) .venv/bin/hpkit sandbox demo

test: setup
	@$(PYTHON) -m pytest -m "not long"

test-slurm-all: setup
	@$(AS_ROOT) $(PYTHON) scripts/every_release.py -m "not long"

smoke: setup
	@$(AS_ROOT) $(PYTHON) scripts/every_release.py --others -m smoke

test-long: setup
	@$(PYTHON) -m pytest
	@$(AS_ROOT) $(PYTHON) scripts/every_release.py

bench: setup
	@$(PYTHON) -m benchmarks

lint: setup
	@$(PYTHON) -m pytest --durations=0 -q tests/test_lint.py tests/test_imports.py

setup:
	@scripts/setup.sh

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
