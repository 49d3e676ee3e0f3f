# One command does one job. Each creates .venv and installs the locked dependencies if need be.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test check format bench lock clean

help:  ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(READY)  ## see it work: brokers, real flights, Spark (DEMO=full: all flights of a year)
	@$(BIN)/angelia demo $(if $(filter full,$(DEMO)),--full)

test: $(READY)  ## run the tests, on two cores
	@$(BIN)/pytest -q -n 2 --dist loadfile

check: $(READY)  ## formatting, lint, types and the architecture's contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(READY)  ## format the code and fix what lint can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY)  ## run the benchmarks; writes docs/benchmarks.md (some 25 minutes)
	@$(BIN)/python bench/poset.py
	@$(BIN)/python bench/matching.py --full --write-docs
	@$(BIN)/python bench/sim.py --write-docs
	@$(BIN)/python bench/broker.py --write-docs
	@$(BIN)/python bench/lake.py
	@$(BIN)/python bench/pipeline.py --write-docs

lock: $(READY)  ## resolve the dependencies anew into requirements.lock
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --upgrade --quiet \
		--no-annotate --no-header --no-emit-index-url --no-emit-find-links -o requirements.lock

clean:  ## remove what the others made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A Python without ensurepip (Debian's, without python3-venv) installs with the pip it has.
$(READY): requirements.lock pyproject.toml
	@echo "setting up .venv (once; some minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv 2>/dev/null || $(PYTHON) -m venv --without-pip .venv
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m pip --python $(BIN)/python install --quiet pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@
