# `make demo` and `make test` are all a newcomer needs; each sets up .venv by itself.
PYTHON ?= python3
BIN := .venv/bin
# One busy neighbour makes spinning OpenMP threads many times slower; passive waiting costs nothing.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: demo test test-slow setup check bench studies clean
demo: setup
	$(BIN)/sumpool demo --out out/demo

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

# Every page and picture of docs/studies, and the README's; SUMPOOL_DATA names the folder of the datasets. Continues where it stopped.
studies: setup
	$(BIN)/sumpool study all --scale cpu --jobs 2 --out docs/studies
	$(BIN)/sumpool demo --out out/demo && cp out/demo/search.png docs/images/demo.png

clean:
	rm -rf .venv build dist out src/*.egg-info
