# Every target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check docs setup clean

demo: setup
	$(BIN)/cts fit digits --out runs/demo --force

test: setup check
	$(BIN)/pytest -n auto --dist worksteal

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# A missing page, a broken link and a command without help are errors.
docs: $(VENV)/.docs
	$(BIN)/python docs/gen_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

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
