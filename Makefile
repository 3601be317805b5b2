# Weir. `make demo` and `make test` need nothing but a Debian-like system: what is missing they
# install, and say so (ci/setup.sh). `make help` names the rest.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test build fmt lint docs bench proofs fuzz

SETUP := set -eu; . ci/setup.sh; needs
TARGET := $(or $(CARGO_TARGET_DIR),target)
WEIR := $(TARGET)/release/weir

help: ## Names the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' Makefile | column -t -s '|'

demo: ## Runs the µNF paper's service chain on recorded HTTP traffic; needs no privileges
	@$(SETUP) rust linker; \
	  echo "== Building weir (cargo build --release)"; \
	  cargo build --release --locked -p weir; \
	  demo/demo.sh $(WEIR)

test: ## Runs all tests: unit, property, crash, model, fuzz, instruction counts
	@ci/test.sh

build: ## Builds the program, target/release/weir
	@$(SETUP) rust linker; cargo build --release --locked -p weir

fmt: ## Formats the code
	@$(SETUP) rust components; cargo fmt --all; cargo fmt --manifest-path fuzz/Cargo.toml; \
	  cargo fmt --manifest-path examples/outside-nf/Cargo.toml; \
	  cargo fmt --manifest-path crates/weir/tests/hostile-nf/Cargo.toml

lint: ## Checks format, lints and documentation, as CI does
	@ci/lint.sh

docs: ## Builds the documentation of the code, target/doc
	@$(SETUP) rust linker; cargo doc --locked --workspace --no-deps

bench: ## Measures chains on this machine (docs/performance.md)
	@$(SETUP) rust linker; cargo build --release --locked -p weir; $(WEIR) bench chain; \
	  $(WEIR) bench latency; \
	  $(WEIR) bench firewall --kind acl,fw,ipc --payloads demo/http.pcap; \
	  $(WEIR) bench consolidation

proofs: ## Memory protocol: loom models, the same with mistakes, ThreadSanitizer
	@$(SETUP) rust linker; ci/mem-proofs.sh

fuzz: ## A short run of the fuzz targets
	@$(SETUP) rust linker cxx; ci/fuzz.sh
