# Everything a person types. Each target installs what it needs when run as root on Debian; otherwise it says what is
# missing and how to get it.

CARGO ?= cargo
# Where rustup puts it; a shell that was open before does not look there.
export PATH := $(HOME)/.cargo/bin:$(PATH)
FUZZ_SECONDS ?= 20

.PHONY: demo test models miri bench instructions lint interop fuzz-smoke

## A file crosses four unlike emulated links in one connection; the fastest is cut and restored; the file is verified.
demo:
	@scripts/need cc cmake
	$(CARGO) run --release --quiet --package litz -- demo

## All tests: unit, property, deterministic pairs, sockets, whole programs.
test:
	@scripts/need cc cmake ip
	$(CARGO) test --workspace --quiet

## Sleeping and waking of the engine's threads, in every order of steps (part of the tests, too).
models:
	@scripts/need cc cmake
	$(CARGO) test --package litz-engine --test models --quiet

## Parsing and emitting under Miri, and what the engine's threads hand to each other, with a few cases for each property; some
## minutes. Properties look for cases that once failed in files, so it is not isolated from the system. What touches the cipher
## (foreign code) or sockets cannot run, and long tests of what one thread has to itself are left out.
miri: export MIRIFLAGS = -Zmiri-disable-isolation
miri: export PROPTEST_CASES = 4
miri:
	@scripts/need cc cmake miri
	$(CARGO) +nightly miri test --package litz-wire --lib --quiet
	$(CARGO) +nightly miri test --package litz-engine --lib --quiet -- cells:: courtesy::

## Side-by-side measurements against peers in network namespaces (root), raw results in bench/results/.
bench:
	@scripts/need cc cmake ip
	bench/run

## Instructions a packet, counted by callgrind and held to limits.
instructions:
	@scripts/need cc cmake valgrind gungraun-runner
	$(CARGO) bench --package litz-quic --bench instructions

## Format, lints and documentation, warnings denied.
lint:
	@scripts/need cc cmake
	$(CARGO) fmt --all --check
# The workspaces of their own are only format-checked here: linting would build all that they compare us with.
	for folder in interop bench fuzz; do (cd $$folder && $(CARGO) fmt --all --check) || exit 1; done
	$(CARGO) clippy --workspace --all-targets --quiet -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps --quiet

## Other people's QUIC against ours.
interop:
	@scripts/need cc cmake
	cd interop && $(CARGO) test --release --quiet

## Each fuzz target for a few seconds (FUZZ_SECONDS).
fuzz-smoke:
	@scripts/need cc cmake c++ nightly
	fuzz/smoke $(FUZZ_SECONDS)
