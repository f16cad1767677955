# Every target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-fast check docs wheel setup clean

demo: setup
	$(BIN)/cts fit digits --out runs/demo --force

test: setup check
	$(BIN)/pytest -n auto --dist worksteal

# No slow tests, none that start processes, none in a browser.
test-fast: setup
	$(BIN)/pytest -n auto --dist worksteal -m "not slow and not subprocess and not browser"

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# A missing page, a broken link and a command without help are errors.
docs: $(VENV)/.docs
	$(BIN)/python docs/gen_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The wheel, installed in a fresh environment, does the demo.
wheel: setup
	rm -rf dist build/wheel-venv
	$(BIN)/python -m build --wheel --outdir dist
	$(PYTHON) -m venv build/wheel-venv
	build/wheel-venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	build/wheel-venv/bin/cts fit digits --out build/wheel-venv/run --schedule search=relaxed:2 merge=merge:1 refine=refine:1

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) runs build dist site src/*.egg-info
