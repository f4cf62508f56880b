# Two commands do everything on a fresh clone: `make demo` and `make test`.
# Each sets up .venv first; the stamp file makes a second run skip that.
PYTHON ?= python3
OUT ?= out
BIN := .venv/bin

.PHONY: help demo test docs format clean

help:  ## list the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/installed  ## run the main job and say where its page is
	$(BIN)/covshift demo --out $(OUT)/demo

test: .venv/installed  ## format check, lint, types, import contracts, tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

docs: .venv/installed  ## build the documentation site, with warnings as errors
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs $(OUT)/docs
	@echo "The documentation: $(OUT)/docs/index.html"

format: .venv/installed  ## rewrite the code in the house format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:  ## remove the environment and all that the commands wrote
	rm -rf .venv $(OUT)

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "covshift needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[torch,games,minari,ray,sb3,tensorboard,docs,dev]'
	@touch $@
