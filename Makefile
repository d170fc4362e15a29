.PHONY: install test test-all lint types check lock bundle

install:  ## the locked environment, and this package for editing
	pip install --require-hashes --requirement requirements.lock
	pip install --no-deps --no-build-isolation --editable .

test:  ## the tests, as .ci/run runs them
	pytest

test-all:  ## all tests, as .ci/nightly runs them
	HYPOTHESIS_PROFILE=nightly pytest -m ""

lint:
	ruff check .
	ruff format --check .
	lint-imports

types:
	pyright

check: lint types test

bundle:  ## dist/palimpsest.mcpb, for Claude Desktop; needs npx
	mkdir -p dist
	npx --yes @anthropic-ai/mcpb@2.1.2 pack . dist/palimpsest.mcpb

lock:  ## run it after a change of the dependencies in pyproject.toml
	uv pip compile --quiet pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
		--no-header --output-file requirements.lock
