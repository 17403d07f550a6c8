# The usual verbs. `make` alone lists them by group: each target says `## group: description`.
CARGO  ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
PREFIX ?= /usr/local
UNITS   = $(DESTDIR)$(PREFIX)/lib/systemd/system
MONITORING = $(SHARE)/leasehold
ETC     = $(DESTDIR)/etc/leasehold
SHARE   = $(DESTDIR)$(PREFIX)/share
MAN     = $(SHARE)/man/man1/leasehold.1
ZSH    ?= site-functions
COMPLETIONS = $(SHARE)/bash-completion/completions/leasehold $(SHARE)/zsh/$(ZSH)/_leasehold \
  $(SHARE)/fish/vendor_completions.d/leasehold.fish

.PHONY: help dev build test outsider servers lint doc deps msrv bench bystanders growth peers rolling sim explore faults failover topologies prometheus systemd upgrade starve stress threads roles scale mutants ci demo picture pictures web setup install uninstall crate deb
.DEFAULT_GOAL := help

# In the order in which a new engineer needs them.
GROUPS = use develop prove measure package

help: ## use: print this list
	@for group in $(GROUPS); do printf '%s\n' "$$group"; \
	  sed -n "s/^\([a-z]*\):[^#]*## $$group: \(.*\)/  make \1\t\2/p" $(firstword $(MAKEFILE_LIST)) | expand -t 18; done

build: ## use: build the release binary, target/release/leasehold (2 minutes)
	$(CARGO) build --locked --release --bin leasehold

# nohup and background shells ignore some signals, and child processes inherit that. Tests send these signals, so
# they are reset to their defaults.
SIGNALS := $(shell env --default-signal true 2>/dev/null && echo env --default-signal)

# Most tests wait for a lease to end, so more of them run at a time than there are cores.
test: export RUST_TEST_THREADS ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 2) * 5 / 2)))

test: setup ## develop: run all tests against private Redis servers (6 minutes once built, on 2 cores)
	$(SIGNALS) $(CARGO) test --locked --workspace

# Outside of the workspace, so that no feature of testkit reaches it. The target directory is shared: the crates are built once.
outsider: setup ## develop: build a program that has only the public names, and run it on a private Redis (half a minute)
	$(CARGO) run --locked --quiet --manifest-path labs/outsider/Cargo.toml --target-dir $(TARGET)

# The tests whose outcome depends on the Redis server: the store contract, and whole instances that start, stop and lead.
# Tests of long fault scenarios are left out: their timing depends on the machine and not on the server.
ON_EACH = store::contract:: handshake:: managed:: rights:: failover:: distribution:: lead:: \
  --skip in_memory --skip memory:: --skip twenty_one_kills

servers: setup ## prove: run the tests that depend on the server on Valkey, Redict and other versions of Redis (15 minutes)
	scripts/servers fetch $(TARGET)/servers
	$(CARGO) test --locked --test it --no-run
	scripts/servers test $(TARGET)/servers $(SIGNALS) $(CARGO) test --locked --test it -- $(ON_EACH)

lint: ## develop: check formatting, clippy, public names and the list of mutants; warnings are errors (1 minute once built)
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --workspace --all-targets --no-default-features -- -D warnings
	$(CARGO) clippy --locked --lib --bins --no-default-features -- -D warnings
	scripts/public-face $(CARGO)
	@command -v python3 >/dev/null && exec scripts/mutants --check; echo "no python3 here: the list of mutants is not checked"

# Only the library: a build of all members shows its internals.
doc: ## develop: build the documentation of the library, and compare its public face with the kept one; LEASEHOLD_BLESS=1 keeps it
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps
	@command -v python3 >/dev/null && exec scripts/public-api; echo "no python3 here: the public face is not compared"

deps: ## develop: check that no async runtime has become a dependency, and how many crates the library needs
	scripts/no-async-runtime $(CARGO)
	scripts/footprint $(CARGO)

# CI has one toolchain. There clippy finds what the standard library of MSRV lacks, and a test asks every dependency.
MSRV   := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
msrv: ## develop: build with the oldest Rust that is promised, if rustup has it (1 minute)
	@$(CARGO) +$(MSRV) --version || { echo "no Rust $(MSRV) here: rustup toolchain install $(MSRV)"; exit 1; }
	$(CARGO) +$(MSRV) check --locked --all-targets --target-dir $(TARGET)/msrv

ci: lint doc deps test outsider ## develop: run lint, doc, deps, test and outsider, as the CI server does (9 minutes from nothing)

# Other clients, next to which polls are measured: ab and Python's requests.
OTHERS  = $(TARGET)/bench
bench: setup ## measure: cost of leases, plans, discovery, polls, start-up and memory; ONLY=engine runs one part, BLESS=1 keeps the numbers (6 minutes)
	@scripts/setup ab || echo "no ab: it is left out"
	@test -d $(OTHERS)/venv || { python3 -m venv $(OTHERS)/venv && $(OTHERS)/venv/bin/pip install -q requests==2.32.3; } \
	  || { rm -rf $(OTHERS)/venv; echo "no requests for Python: it is left out"; }
	$(CARGO) bench --locked --bench numbers -- $(ONLY)

bystanders: setup ## measure: latency of other clients of a Redis that holds a million leases (2 minutes)
	$(CARGO) bench --locked --bench numbers -- bystanders

growth: setup ## measure: cost per endpoint up to a million, and per instance up to 50; BLESS=1 keeps the numbers (5 minutes)
	$(CARGO) bench --locked --bench numbers -- growth

PEERS   = $(TARGET)/peers
peers: setup ## measure: cost of Leasehold and of other lock libraries for Rust, redis-py and node (3 minutes)
	@test -d $(PEERS)/venv || { python3 -m venv $(PEERS)/venv && $(PEERS)/venv/bin/pip install -q redis==8.1.0; } \
	  || { rm -rf $(PEERS)/venv; echo "no redis-py: it is left out"; }
	@test -d $(PEERS)/node_modules/redlock || npm install --silent --no-fund --no-audit --prefix $(PEERS) \
	  redlock@4.2.0 ioredis@5 || echo "no redlock for node: it is left out"
	$(CARGO) run --locked --release --manifest-path benches/peers/Cargo.toml --target-dir $(PEERS)/build

# Labs run the release binary. They have a profile of their own, because a failed check has to unwind.
LAB     = $(CARGO) run --locked --profile lab -p labs --bin

rolling: setup build ## prove: restart a fleet with 10,000 endpoints, and let all its leases expire, at the default timings (5 minutes)
	$(LAB) rolling

SEEDS  ?= 1000
FAULTS ?= 40
# Without TLS, which the simulator does not use: the build takes half the time.
SIM     = $(CARGO) run --locked --release --no-default-features -p labs --bin sim --

sim: ## prove: simulate random faults on a whole fleet in memory: SEEDS=1000 FAULTS=40, or SEED=n for one run with its trace (1 minute)
	$(SIM) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) --faults $(FAULTS)

explore: ## prove: check every interleaving of the small case: EVENTS=3 TICKS=6 (1 minute)
	$(SIM) --explore --events $(or $(EVENTS),3) --ticks $(or $(TICKS),6)

faults: setup build ## prove: break real networks, Redis servers, processes and clocks, as root: ONLY=name (3 minutes)
	@scripts/setup unshare ip iptables tc cc
	$(LAB) faults -- $(ONLY)

# TIMES, FLEETS, TTL, BOUND, BACK, PHASE, HANG and BLESS reach the lab through the environment: make exports variables of its command line.
failover: setup build ## prove: measure how long failovers take after kills, power-offs, partitions and stops, as root: ONLY=sigkill TIMES=20 TTL=3s BOUND=none, BLESS=1 (20 minutes)
	@scripts/setup unshare ip iptables tc bash
	$(LAB) failover -- $(ONLY)

topologies: setup build ## prove: fail over, partition and reshard real Sentinels and clusters, as root: ONLY=name (4 minutes)
	@scripts/setup unshare ip iptables tc
	$(LAB) topologies -- $(ONLY)

prometheus: setup ## prove: check alert rules and written metrics with promtool (a few seconds once built)
	@scripts/setup promtool
	$(CARGO) build --locked --bin leasehold
	scripts/prometheus $(TARGET)/debug/leasehold

systemd: setup build ## prove: kill, freeze, restart, upgrade and power off five VMs under real systemds, as root (3 minutes)
	$(LAB) systemd

# The two revisions of the upgrade. d683703 is the last one before src/ was reorganised by concern.
BEFORE ?= d683703
AFTER  ?= HEAD
upgrade: setup ## prove: let two versions, built from git, share a fleet and a role: BEFORE=d683703 AFTER=HEAD ONLY=name (3 minutes once built)
	BEFORE=$(BEFORE) AFTER=$(AFTER) $(LAB) upgrade -- $(ONLY)

starve: setup build ## prove: hang a tenth to all of the endpoints; the others must still be polled: ONLY=name, ONLY=soak FOR=1h, BLESS=1 (15 minutes)
	$(LAB) starve -- $(ONLY) $(FOR)

stress: setup build ## prove: kill and freeze 64 instances with 5,000 endpoints at random: FOR=10m SEED=1 (10 minutes)
	$(LAB) stress -- $(or $(FOR),10m) $(or $(SEED),1)

threads: setup ## prove: use two LeaseManagers from 64 threads, and a poller that panics: FOR=60s ONLY=owners (2 minutes)
	$(LAB) threads -- $(or $(FOR),60s) $(ONLY)

roles: setup ## prove: lead 2,000 roles from one process on a Redis 10 ms away, hand them over, and stop while Redis hangs: ROLES=2000 FOR=30s (a minute once built)
	$(LAB) roles -- $(or $(ROLES),2000) $(or $(FOR),30s)

scale: setup ## measure: 100,000 sessions on ten daemons beside their Redis: FOR=10m ONLY=rest BLESS=1; FOR=3m ONLY=hanging takes 5 minutes (50 minutes)
	$(CARGO) bench --locked --bench scale -- $(or $(FOR),10m) $(ONLY)

mutants: setup ## prove: plant deliberate bugs one by one; a test must fail for each (about half an hour)
	scripts/mutants -j3

dev: setup ## use: start a private Redis and three instances, and print what to try; Ctrl-C ends and removes all of it
	$(CARGO) build --locked --quiet --bin leasehold
	@$(TARGET)/debug/leasehold dev

web: setup build ## prove: drive the page with a real browser: every view, 100,000 endpoints, keyboard, screen reader, hostile sessions (3 minutes)
	@scripts/setup chromedriver
	scripts/web-check $(TARGET)/release/leasehold

demo: setup ## use: watch four instances on a private Redis go through four mishaps (half a minute)
	$(CARGO) build --locked --quiet --bin leasehold --example demo
	@$(TARGET)/debug/examples/demo

picture: setup ## measure: draw docs/results/load.svg again: leases per instance through join, crash, drain and restart
	$(CARGO) build --locked --quiet --bin leasehold --example demo
	@$(TARGET)/debug/examples/demo --picture docs/results/load.svg

pictures: picture ## measure: draw docs/results/demo.svg, web.png and top.svg again, too: real fleets in a terminal and a browser (4 minutes)
	@scripts/setup chromedriver python3
	scripts/animate docs/results/demo.svg $(TARGET)/debug/examples/demo
	$(CARGO) build --locked --quiet --bin leasehold
	scripts/web-check $(TARGET)/debug/leasehold --pictures docs/results

setup: ## develop: install redis-server, openssl, curl and python3 with apt if they are missing
	@scripts/setup redis-server openssl curl python3

install: ## package: install binary, units, man page, completions, example settings, alerts and dashboard: PREFIX DESTDIR
	@test -x $(TARGET)/release/leasehold || $(MAKE) build
	install -D -m 755 $(TARGET)/release/leasehold $(DESTDIR)$(PREFIX)/bin/leasehold
	install -D -m 644 systemd/leasehold.env.example $(ETC)/leasehold.env.example
	install -D -m 644 -t $(MONITORING) monitoring/alerts.yml monitoring/grafana.json
	install -d $(UNITS) $(dir $(MAN)) $(dir $(COMPLETIONS))
	for unit in leasehold.service leasehold@.service leasehold-agent.service; do \
	  sed 's|/usr/local/bin|$(PREFIX)/bin|' systemd/$$unit >$(UNITS)/$$unit || exit; done
	$(TARGET)/release/leasehold man >$(MAN)
	$(TARGET)/release/leasehold completions bash >$(word 1,$(COMPLETIONS))
	$(TARGET)/release/leasehold completions zsh >$(word 2,$(COMPLETIONS))
	$(TARGET)/release/leasehold completions fish >$(word 3,$(COMPLETIONS))

uninstall: ## package: remove what make install has installed; your settings stay
	rm -f $(DESTDIR)$(PREFIX)/bin/leasehold $(UNITS)/leasehold.service $(UNITS)/leasehold@.service \
	  $(UNITS)/leasehold-agent.service
	rm -f $(MAN) $(COMPLETIONS) $(ETC)/leasehold.env.example
	rm -rf $(MONITORING)
	-rmdir --ignore-fail-on-non-empty $(ETC)

crate: ## package: build the package for the registry, and compile it from its own files (2 minutes)
	$(CARGO) package --locked -p leasehold

deb: build ## package: build a package for Debian 12 and later, target/leasehold_VERSION_ARCH.deb (2 minutes)
	scripts/deb $(TARGET)
