# `make demo` and `make test` are all a newcomer needs; each sets up .venv by itself.
PYTHON ?= python3
BIN := .venv/bin
# One busy neighbour makes spinning OpenMP threads many times slower; passive waiting costs nothing.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: demo test test-slow setup check bench clean
demo: setup
	$(BIN)/sumpool study toy --out out/toy

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m "not slow"

test-slow: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m slow

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv build dist out src/*.egg-info
