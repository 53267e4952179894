# Two commands do everything on a fresh Debian 12 with a Rust toolchain:
# `make run` and `make test`. The work is done in scripts/; this file names it.
#
#   CI=true or SHEAF_CACHE=DIR   keep build artefacts outside the checkout
#   DATA_DIR=DIR                 where `make run` keeps its data (default ./data)
#   SOAK=2h                      how long `make soak` goes on (default: each test once)
#   ARGS="..."                   more arguments for `sheaf up` in `make run`

DATA_DIR ?= $(CURDIR)/data
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test test-quick test-peer build screenshots bench bench-peer lint soak clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## Build Sheaf, start it here on one node, and a virtual machine on it (DATA_DIR, ARGS)
	@scripts/install-packages vm guest
	@exec scripts/run target/release/sheaf "$(DATA_DIR)" $(ARGS)

test: ## Check everything a change must pass: lints, unit, conformance and end-to-end tests
	@scripts/install-packages build test
	@scripts/with-cache scripts/test

test-quick: ## Check most of it in minutes, while you work: lints, unit and conformance tests, one virtual machine
	@scripts/install-packages build test
	@scripts/with-cache scripts/test --quick

test-peer: ## Ask the original API server, built here, what the tests ask Sheaf (the first time takes long)
	@scripts/install-packages build test
	@scripts/with-cache scripts/test-peer

build: ## Build the release binary, target/release/sheaf
	@scripts/install-packages build
	@scripts/with-cache scripts/build-release

screenshots: build ## Take pictures of every page of the web console, into ./screenshots
	@scripts/install-packages test
	@scripts/screenshots target/release/sheaf screenshots

bench: build ## Measure speed and memory; the table also goes to bench/results/
	@scripts/install-packages test
	@SHEAF_BIN="$(CURDIR)/target/release/sheaf" SHEAF_BROWSER="$$(scripts/build-browser)" scripts/with-cache cargo bench --locked --package sheaf-tests --bench api --bench machines --bench storage --bench console

bench-peer: build ## Measure the original API server and Sheaf side by side; the table also goes to bench/results/
	@scripts/install-packages build test
	@SHEAF_BIN="$(CURDIR)/target/release/sheaf" scripts/with-cache scripts/bench-peer

lint: ## Check formatting, lints and the dependencies' licences
	@scripts/install-packages build
	@scripts/with-cache scripts/lint

soak: ## Run the long tests: many seeds, every fault, for hours (SOAK=2h)
	@scripts/install-packages build test
	@scripts/with-cache scripts/soak

clean: ## Remove what was built here (not ./data, not the cache)
	rm -rf target
