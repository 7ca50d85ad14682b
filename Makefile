# Two commands do everything on a machine that has python3 (3.11 or later, with venv and pip) and make:
#
#     make demo               a team of agents reads this folder (or FOLDER=...) and writes report.md
#     make test               the whole test suite
#
# The first of them makes .venv and installs the pinned versions of constraints.txt into it: the package for the demo (a few MB),
# the tools of the developers, too, for everything else (some 50 MB). Later ones find it ready.

PYTHON ?= python3
FOLDER ?= .
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
OUTSIDE := $(VENV)/.outside
AIMOCK := 1.43.0
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check --no-input

export PIP_ROOT_USER_ACTION := ignore

.DEFAULT_GOAL := help
.PHONY: help setup demo chat test outside coverage lint format types docs docs-check check bench benchmarks prove torture clean
.DELETE_ON_ERROR:

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY) ## .venv with everything in it

# A stamp is written last: a set-up that was cut short is done again. A .venv without a working pip is made anew.
$(INSTALLED): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Callboard needs Python 3.11 or later, and there is no $(PYTHON) here: install it, or name one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Callboard needs Python 3.11 or later, and $(PYTHON) is $$($(PYTHON) -c 'import platform; print(platform.python_version())'): name a newer one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) has no venv module: install it (on Debian and Ubuntu: the package python3-venv)" >&2; exit 1; }
	@echo "setting up $(VENV) (once)" >&2
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --constraint constraints.txt --upgrade pip
	@$(PIP) install --constraint constraints.txt --editable '.[net]'
	@touch $@

$(READY): $(INSTALLED)
	@echo "adding what developers need to $(VENV) (once)" >&2
	@$(PIP) install --constraint constraints.txt --group dev
	@touch $@

# A browser, a terminal without a window (tmux), a mock of the providers' services from npm, and a model server: none is needed to use Callboard or to run its own tests.
$(OUTSIDE): $(READY)
	@command -v npm >/dev/null || { echo "make outside needs npm: install Node.js" >&2; exit 1; }
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null; } \
		|| { echo "make outside needs Chromium: install it (on Debian: the package chromium)" >&2; exit 1; }
	@command -v tmux >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null; } \
		|| { echo "make outside needs tmux: install it (on Debian: the package tmux)" >&2; exit 1; }
	@echo "adding a browser and servers to test against (once)" >&2
	@command -v chromium >/dev/null || { apt-get -qq -o Acquire::Retries=3 update && DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 install --yes --no-install-recommends chromium >/dev/null; }
	@command -v tmux >/dev/null || { apt-get -qq -o Acquire::Retries=3 update && DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 install --yes --no-install-recommends tmux >/dev/null; }
	@npm install --loglevel=error --no-fund --no-audit --no-update-notifier --prefix $(VENV)/npm @copilotkit/aimock@$(AIMOCK) >/dev/null
	@$(PIP) install --constraint constraints.txt --group outside
	@touch $@

demo: $(INSTALLED) ## a team of agents reads FOLDER (default: this one) and writes report.md here
	@$(BIN)/callboard demo "$(FOLDER)" $(ARGS)

chat: $(INSTALLED) ## talk to an agent here, without a key; ARGS="--model openai:NAME" with one
	@$(BIN)/callboard chat $(ARGS)

test: $(READY) ## the test suite; ARGS="-k inbox" chooses
	@$(BIN)/python -m pytest $(ARGS)

outside: $(OUTSIDE) ## the tests against a real browser and servers nobody here wrote (CI runs them too)
	@$(BIN)/python -m pytest -m "outside and not long" $(ARGS)

coverage: $(READY) ## the test suite, and which lines and branches of storage/, mailbox/ and actors/ it leaves out
	@$(BIN)/python -m coverage run -m pytest $(ARGS)
	@$(BIN)/python -m coverage report --include='storage/*,mailbox/*,actors/*'
	@echo "net/, much of which runs in processes of its own that are not counted: $$($(BIN)/python -m coverage report --include='net/*' --format=total --fail-under=0) %"

lint: $(READY) ## ruff: rules and format
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "run make format" >&2; exit 1; }

format: $(READY) ## ruff puts it right where it can
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format --quiet .

types: $(READY) ## mypy and pyright, both strict
	@$(BIN)/mypy
	@$(BIN)/mypy tests bench docs
	@command -v node >/dev/null || $(PIP) install --constraint constraints.txt 'pyright[nodejs]'
	@$(BIN)/pyright

docs: $(READY) ## write the generated pages of docs/
	@$(BIN)/python docs/generate.py

docs-check: $(READY) ## fail if a generated page is stale
	@$(BIN)/python docs/generate.py --check

check: lint types docs-check test ## what a change has to pass: format, types, generated pages, tests

bench: $(READY) ## the benchmarks; ARGS=--short for a quick look
	@$(BIN)/python -m bench $(ARGS)

FIGURES := "turn x1" "tool x1" "turn x200" "tool x200" "turn x200, gc server" "tool x200, gc server" "turn x1000, gc server" "turn x5000, gc server" \
	"paced turn x200" "append x200" "append x200, busy loop" "mail, 100 pairs" "spawn x200" "open 100,000 records" \
	"open 100 records" "restart with 1,000 open turns" "followers x100" "turns against agents" "events against length"

benchmarks: $(READY) ## take the figures of docs/benchmarks.md again, peers too, and write the page (half an hour)
	@$(PIP) install --constraint constraints.txt matplotlib
	@$(BIN)/python -m bench --peers $(FIGURES) --repeat 3 --out docs/benchmarks.json $(ARGS)
	@$(BIN)/python -m bench.page

prove: $(READY) ## random lives, recovered from every crash (minutes); ARGS="--lives 1000 --seed 7"
	@$(BIN)/python tests/actors/prove.py $(ARGS)

TORTURES := kill_store kill_demo kill_agents kill_batch kill_delivery stop_owner full_disk simulate

torture: $(READY) ## kill real processes, many times (minutes); ONLY=kill_agents ARGS="--kills 1000" chooses
	@set -e; for name in $(or $(ONLY),$(TORTURES)); do echo "$$name" >&2; $(BIN)/python tests/torture/$$name.py $(ARGS); done

clean: ## remove what make and the tools made; never the state of the demo
	@rm -rf $(VENV) build dist callboard.egg-info .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
