# Plateway: the chores by name. `make` alone lists them. The work itself is in xtask (cargo xtask help).
#
# CARGO_TARGET_DIR is honoured by everything here; ARGS="..." is passed on to the program behind a chore,
# e.g. make bench ARGS="--rounds 3 mpls-swap" or make test ARGS="--only unit,demo".

.DEFAULT_GOAL := help
SHELL := /bin/bash
ARGS ?=

# rustup's cargo before Debian's, and sbin for mke2fs and depmod, which an ordinary user's PATH leaves out.
export PATH := $(HOME)/.cargo/bin:$(PATH):/usr/sbin:/sbin

.PHONY: help deps deps-build deps-bench build deb container demo test bench lab-quick papers interop fuzz mutants lint

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: deps-build ## build, then serve a striped volume over NVMe/TCP and iSCSI, verify and measure it (under a minute)
	@cargo xtask demo $(ARGS)

test: deps ## every test, cheap ones first, and a table at the end
	@cargo xtask test $(ARGS)

build: deps-build ## the static release binary
	@cargo xtask release $(ARGS)

deb: deps-build ## the Debian package of it, with unit, manual pages and completions
	@cargo xtask deb $(ARGS)

container: deps-build ## a container image of it, by podman, buildah or docker
	@cargo xtask container $(ARGS)

bench: deps-bench ## the measurements of docs/performance.md
	@cargo xtask bench $(ARGS)

lab-quick: deps ## AoE, iSCSI and NVMe/TCP on one volume in memory, compared in under five minutes (root)
	@cargo xtask lab run plans/quick.toml --result "$${CARGO_TARGET_DIR:-target}/lab-quick.json" --overwrite $(ARGS)

papers: deps ## what five papers measured, measured again in minutes, and what holds here: target/papers/papers.html (root)
	@cargo xtask lab paper all --quick --result "$${CARGO_TARGET_DIR:-target}/papers" --overwrite $(ARGS)

interop: deps ## the real Linux initiators and iPXE, whole matrix (some hours)
	@cargo xtask interop matrix $(ARGS)

fuzz: deps ## every fuzz target for an hour each
	@cargo xtask fuzz --seconds 3600 $(ARGS)

mutants: deps ## one-line bugs that no test notices, of a sample (three hours at most)
	@cargo xtask mutants $(ARGS)

lint: deps-build ## formatting, clippy and the walls between the rooms
	@cargo xtask lint $(ARGS)

deps: ## install what the tests need (Debian or Ubuntu)
	@.ci/deps test

deps-build:
	@.ci/deps build

deps-bench:
	@.ci/deps bench
