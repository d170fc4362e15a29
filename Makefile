.PHONY: install test lint types check lock bundle

install:  ## the locked environment, and the package itself for editing
	pip install --require-hashes --requirement requirements.lock
	pip install --no-deps --no-build-isolation --editable .

test:  ## everything, on real subprocesses and a model of our own on loopback
	pytest

lint:
	ruff check .
	ruff format --check .
	lint-imports

types:
	pyright

check: lint types test

bundle:  ## dist/palimpsest.mcpb, for Claude Desktop; wants npx
	mkdir -p dist
	npx --yes @anthropic-ai/mcpb@2.1.2 pack . dist/palimpsest.mcpb

lock:  ## after a change of dependencies in pyproject.toml
	uv pip compile --quiet pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
		--no-header --output-file requirements.lock
