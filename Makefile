# Two commands: `make demo` fits twenty oscillators and says where its report is; `make test` checks everything that can be
# checked in minutes, `make nightly` all the rest too. All set themselves up in .venv with the versions in constraints.txt.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test nightly lint types docs check everything browser setup format bench clean

demo: $(READY)
	$(BIN)/closura fit mass-damper --out runs/demo --overwrite

# Types and documentation are checked beside the tests and say what they found in one piece, when they are done. A browser
# is installed beside them too: its tests come last.
test nightly: lint
	@said=$$(mktemp); trap 'rm -f "$$said"' EXIT; \
	( $(MAKE) --no-print-directory -k browser types docs >"$$said" 2>&1; failed=$$?; cat "$$said"; exit $$failed ) & beside=$$!; \
	$(MAKE) --no-print-directory $(if $(filter nightly,$@),everything,check); failed=$$?; \
	wait $$beside || { failed=2; echo "types or documentation are wrong, see above"; }; \
	exit $$failed

setup: $(READY)

lint: $(READY)
	@git ls-files -z 2>/dev/null | xargs -0 $(BIN)/python tools/tidy.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# Without --quiet, under which warnings are not counted and nothing is an error.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# A file stays with one worker, so that what its tests share is made once; tests/conftest.py says which come first.
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

check: $(READY)
	$(PYTEST)

everything: $(READY)
	$(PYTEST) -m ""

# The report is tested in a real browser: Debian's, where there is none and it may be installed; else those tests are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "installing Chromium for the tests of the report" \
	       && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	  || echo "no Chromium: tests of the report in a browser are skipped (sudo apt-get install chromium)"

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "closura needs Python 3.11 or newer; name one with: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
