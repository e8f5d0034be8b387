# Two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo-run
PYTEST := $(BIN)/pytest -n 2 --dist worksteal

.PHONY: demo test test-all lint format docs bench bench-serve release-check clean

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	$(BIN)/pip install -q -e '.[local,toxicity]'
	touch $@

# torch first and pinned: the CPU build that the tests are known to pass with.
$(VENV)/.dev: $(VENV)/.core
	$(BIN)/pip install -q torch==2.13.0
	$(BIN)/pip install -q -e '.[dev]'
	touch $@

demo: $(VENV)/.core  ## the built-in model's bias before and after training, its toxicity with and without StarDTox, offline
	$(BIN)/evenhand models pull builtin
	$(BIN)/evenhand models pull neural
	rm -rf $(DEMO)
	$(BIN)/evenhand compare --model local/builtin --model local/builtin-fair --method default --limit 44 --out $(DEMO)/bias
	$(BIN)/evenhand compare --model local/builtin --benchmark realtoxicity_builtin --set bands=high --set completions=2 \
	  --limit 16 --scorer neural --method default --method stardtox:performance=false,toxicity=0.1 --out $(DEMO)/toxicity

test: $(VENV)/.dev  ## lint, types, import rules and the tests that need neither real weights nor many processes
	$(BIN)/evenhand models pull builtin
	$(MAKE) lint
	$(PYTEST) -m 'not (weights or processes or training or network or clients or slow)'

test-all: $(VENV)/.dev  ## the same and every test, with coverage; skipped ones are listed with the reason
	$(BIN)/evenhand models pull builtin
	$(MAKE) lint
	$(PYTEST) -rs --cov --cov-report=term:skip-covered

lint: $(VENV)/.dev .cache/types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# Most of lint's time, so only if something changed since types were last right.
.cache/types: $(VENV)/.dev pyproject.toml $(shell find src -name __pycache__ -prune -o -print)
	$(BIN)/pyright
	mkdir -p $(@D) && touch $@

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.core  ## the site, into site/; a broken link or anchor is an error
	$(BIN)/pip install -q -e '.[docs]'
	$(BIN)/zensical build --strict --clean

bench: $(VENV)/.dev  ## timings next to peers; see bench/README.md
	$(BIN)/python bench/run.py

bench-serve: $(VENV)/.dev  ## the guard server next to direct calls, and under strain; about a quarter of an hour
	$(BIN)/python bench/serve.py

release-check: $(VENV)/.core  ## builds wheel and sdist into dist/, checks them and tries both in fresh environments
	$(BIN)/pip install -q -e '.[release]'
	$(BIN)/python tools/release_check.py $(if $(TAG),--tag $(TAG))

clean:
	rm -rf $(VENV) $(DEMO) .cache dist site
