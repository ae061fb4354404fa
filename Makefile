# The commands of this project. Run as root on Debian, each target installs its tools. Otherwise it
# says which tools are missing and how to install them.

CARGO ?= cargo
# The folder where rustup installs cargo: a shell that was open before does not look there.
export PATH := $(HOME)/.cargo/bin:$(PATH)
FUZZ_SECONDS ?= 20
DENY_CHECKS ?=
INTEROP_RESULTS ?= target/interop.json
# The programs that tests of the command use. Without one its tests are skipped.
TEST_PROGRAMS = ip tc ss nstat python3 curl nginx iperf3 ssh ssh-keygen sshd rsync redis-server redis-cli postgres \
	setpriv script nft conntrack busybox ping dig nslookup musl-gcc go

.PHONY: demo dist dist-test quick test test-long test-programs programs models miri bench instructions instructions-build lint deny api api-update book interop \
	interop-build interop-full packetdrill fuzz-build fuzz-smoke

## A file crosses four unlike emulated links in one connection; the fastest is cut and restored; the
## file is verified.
demo:
	@scripts/need cc cmake
	$(CARGO) run --profile demo --package litz-cli -- demo

## A package for Debian and Ubuntu, for this machine's architecture, in target/dist, with manual pages,
## completions and units of systemd.
dist:
	@scripts/dist

## Installs the package of `make dist` into a bare Debian system, sends, receives and tunnels there, as
## root. LITZ_DIST_PROGRAM=FILE packs this program: some seconds instead of a build.
dist-test:
	@scripts/dist
	@scripts/dist-test

## All tests: unit, property, deterministic pairs, sockets, whole programs. Random tests run a share
## of their cases. Many tests wait for other processes and for time, so more run than there are processors.
test: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
test:
	@scripts/need cc cmake ip
	$(CARGO) test --workspace --tests --no-run
	$(CARGO) test --workspace --tests --quiet
	$(CARGO) test --workspace --doc --quiet

## The same with all cases of random tests: some minutes more.
test-long: export LITZ_TEST_SHARE = 100
test-long: test

## What has changed since the last commit: format, counts that may only fall, clippy and tests of the changed
## crates. `make quick SINCE=main~3` compares with another commit.
quick:
	@scripts/need cc cmake python3
	@scripts/quick $(SINCE)

## The tests of the command with other programs, as root. They fail where a program is missing, and nothing
## is installed.
test-programs: export LITZ_TEST_STRICT = 1
test-programs:
	@scripts/need --check cc cmake $(TEST_PROGRAMS)
	$(CARGO) test --package litz-cli --test all --quiet -- tunnel forward tcp_programs

## Installs these programs. Not part of `make test`, because some of them install services.
programs:
	@scripts/need $(TEST_PROGRAMS)

## Model checking of sleeping and waking with loom (part of `make test`, too): the engine's, and that of
## rings in shared memory.
models:
	@scripts/need cc cmake
	$(CARGO) test --package litz-engine --package litz-rings --test models --quiet

## Under Miri: parsing and emitting, the values that application threads and the driver share, and rings
## over ordinary memory, with a few cases for each property; some minutes. Properties read files of cases that once
## failed, so Miri does not isolate them from the system. Tests that reach the cipher (foreign code)
## or sockets cannot run under Miri.
miri: export MIRIFLAGS = -Zmiri-disable-isolation
miri: export PROPTEST_CASES = 4
miri:
	@scripts/need cc cmake miri
	$(CARGO) +nightly miri test --package litz-wire --lib --quiet
	$(CARGO) +nightly miri test --package litz-quic-driver --lib --quiet -- cells::
	$(CARGO) +nightly miri test --package litz-rings --lib --quiet
	$(CARGO) +nightly miri test --package litz-driver --lib --quiet -- sync:: inlet:: run_queue:: interactive::

## Side-by-side measurements against peers in network namespaces (root), raw results in
## bench/results/.
bench:
	@scripts/need cc cmake ip
	bench/run

## Instructions per packet, counted by callgrind and compared with limits.
instructions: instructions-build
	$(CARGO) bench --package litz-quic --bench instructions

## Builds what `make instructions` counts.
instructions-build:
	@scripts/need cc cmake valgrind gungraun-runner
	$(CARGO) bench --package litz-quic --bench instructions --no-run

## Format, import cycles, sizes, prose, lints and documentation, warnings denied.
lint:
	@scripts/need cc cmake python3
	$(CARGO) fmt --all --check
	scripts/check-cycles
	scripts/check-sizes
	scripts/check-prose
# The separate workspaces are only format-checked here: linting would build every peer that they
# compare with.
	for folder in interop interop/packetdrill bench fuzz; do (cd $$folder && $(CARGO) fmt --all --check) || exit 1; done
	$(CARGO) clippy --workspace --all-targets --quiet -- --deny warnings
# The library without its features: with the whole workspace it has all of them.
	$(CARGO) clippy --package litz --quiet -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps --quiet

## Advisories, licences and sources of the dependencies (deny.toml). The database of advisories comes
## from the network: `make deny DENY_CHECKS="bans licenses sources"` leaves it out.
deny:
	@scripts/need cargo-deny
	$(CARGO) deny check --hide-inclusion-graph $(DENY_CHECKS)

## The public API of litz and litz-transfer must be that of docs/api; `make api-update` writes the
## files.
api:
	@scripts/need cc cmake python3 nightly cargo-public-api
	@scripts/public-api

api-update:
	@scripts/need cc cmake python3 nightly cargo-public-api
	@scripts/public-api --update

## Links, paths and line lengths of all documents; the requirements of the specifications and their
## tests; the book (target/book).
book:
	@scripts/need python3 mdbook
	scripts/check-links
	scripts/check-requirements
	mdbook build docs

## Interoperability with other QUIC implementations: quinn and noq in tests, and short cases with those
## whose programs build quickly.
interop: interop-build
	cd interop && $(CARGO) test --profile quick --quiet
	cd interop && $(CARGO) run --profile quick --quiet --bin matrix -- --quick

## Builds what `make interop` runs, and the library for packetdrill, which must build: its scripts are
## fetched from the network, by `make packetdrill`.
interop-build:
	@scripts/need cc cmake venv go
	cd interop && $(CARGO) test --profile quick --quiet --no-run
	cd interop && $(CARGO) build --profile quick --quiet --bin matrix
	cd interop/packetdrill && $(CARGO) build --quiet

## All cases with all of them, 100 MB each; writes docs/interop.md. INTEROP_RESULTS is the file of the
## raw results.
interop-full:
	@scripts/need cc c++ cmake venv go libclang ngtcp2
	cd interop && $(CARGO) run --release --bin matrix -- --page ../docs/interop.md \
		--results $(INTEROP_RESULTS)

## The scripts of packetdrill about TCP against ours; fetches packetdrill into target/packetdrill, and
## compares with the list of what passes (interop/packetdrill/scripts.toml).
packetdrill:
	@scripts/need cc make git bison flex python3
	interop/packetdrill/run

## Each fuzz target for a few seconds (FUZZ_SECONDS).
fuzz-smoke: fuzz-build
	fuzz/smoke $(FUZZ_SECONDS)

## Builds the fuzz targets with address sanitizer.
fuzz-build:
	@scripts/need cc cmake c++ nightly
	fuzz/smoke build
