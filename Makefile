VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: install demo test long fuzz pages check bench chart docs pictures lock

# Set up .venv without starting anything.
install: $(VENV)/.ready

# Start every workload with the demo bundles, show one call of each, and paint a sheet of
# pictures (.demo/contact-sheet.png); ONCE=1 stops after, PORT=8001 listens there.
demo: $(VENV)/.ready
	$(BIN)/headpond demo $(if $(ONCE),--once) $(if $(PORT),--port $(PORT)) \
		--then "$(BIN)/python recipes/tinysd_digits/contact_sheet.py .demo/contact-sheet.png"

test: $(VENV)/.ready
	$(BIN)/pytest

# Run the tests that take half a minute each.
long: $(VENV)/.ready
	$(BIN)/pytest -m long

# Try the property tests with new examples, where `make test` tries the same ones each time.
fuzz: $(VENV)/.ready
	$(BIN)/pytest -m hypothesis --hypothesis-profile=default

# Run what every page of the documentation shows, on a running platform: ten minutes.
pages: $(VENV)/.ready
	$(BIN)/pytest -m "pages or not pages" tests/e2e/test_pages.py

check: $(VENV)/.ready
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

# make bench SUBJECT=router
bench: $(VENV)/.ready
	$(BIN)/python benchmarks/$(SUBJECT).py

# Bring what the Helm chart knows of the platform up to date.
chart: $(VENV)/.ready
	$(BIN)/python helm/generate.py

# Write the generated pages anew, and all of docs/ as a site to build/site.
docs: $(VENV)/.ready
	$(BIN)/python docs/reference.py && $(BIN)/python docs/workloads.py && $(BIN)/python docs/api.py
	$(BIN)/zensical build --clean --strict

# Take the pictures of the playground anew, on a platform that `make demo` has started.
pictures: $(VENV)/.ready
	$(BIN)/python docs/screenshots.py http://127.0.0.1:$(or $(PORT),8000)

lock:
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
		--quiet --no-header --no-annotate -o requirements.lock

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@
