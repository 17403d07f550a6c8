# The usual verbs. `make` alone lists them.
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

.PHONY: help build test servers lint doc deps bench bystanders growth peers rolling sim explore faults topologies systemd stress threads scale mutants ci demo picture setup install uninstall deb
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

build: ## the release binary, target/release/leasehold
	$(CARGO) build --locked --release --bin leasehold

# Under nohup or in the background of a shell some signals are ignored, by what tests start, too; and what
# signals do is tested.
SIGNALS := $(shell env --default-signal true 2>/dev/null && echo env --default-signal)

test: setup ## all tests, against private Redis servers of their own
	$(SIGNALS) $(CARGO) test --locked

# What a server can do differently: the contract with it, and whole instances that come, go and lead. Not how long
# things take when much goes wrong: that depends on the machine.
ON_EACH = store_contract:: handshake:: managed:: rights:: failover:: distribution:: lead:: \
  --skip in_memory --skip memory:: --skip twenty_one_kills

servers: setup ## the tests that depend on the server, on Valkey, Redict and other versions of Redis (15 minutes)
	scripts/servers fetch $(TARGET)/servers
	$(CARGO) test --locked --test it --no-run
	scripts/servers test $(TARGET)/servers $(SIGNALS) $(CARGO) test --locked --test it -- $(ON_EACH)

lint: ## formatting and clippy, warnings are errors
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --all-targets --no-default-features -- -D warnings
	@command -v python3 >/dev/null && exec scripts/mutants --check; echo "no python3 here: the list of mutants is not checked"

doc: ## the library's documentation, warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps

deps: ## check that no async runtime has come in as a dependency
	scripts/no-async-runtime $(CARGO)

ci: lint doc deps test ## lint, doc, deps and test: what .ci/run calls

bench: setup ## what leases, plans, discovery, polls, a start and memory cost, beside the last that was kept (6 minutes; ONLY=engine BLESS=1)
	$(CARGO) bench --locked --bench numbers -- $(ONLY)

bystanders: setup ## what others on the same Redis notice of a million leases (2 minutes)
	$(CARGO) bench --locked --bench numbers -- bystanders

growth: setup ## what things cost for each endpoint up to a million, and for each instance up to 50 (5 minutes; BLESS=1)
	$(CARGO) bench --locked --bench numbers -- growth

PEERS   = $(TARGET)/peers
peers: setup ## what locks of others cost, next to ours: Rust, redis-py, node (3 minutes)
	@test -d $(PEERS)/venv || { python3 -m venv $(PEERS)/venv && $(PEERS)/venv/bin/pip install -q redis==8.1.0; } \
	  || { rm -rf $(PEERS)/venv; echo "no redis-py: it is left out"; }
	@test -d $(PEERS)/node_modules/redlock || npm install --silent --no-fund --no-audit --prefix $(PEERS) \
	  redlock@4.2.0 ioredis@5 || echo "no redlock for node: it is left out"
	$(CARGO) run --locked --release --manifest-path benches/peers/Cargo.toml --target-dir $(PEERS)/build

rolling: setup ## 10,000 endpoints: rolling restart, mass lapse, default timings (5 minutes)
	$(CARGO) bench --locked --bench rolling

SEEDS  ?= 1000
FAULTS ?= 40
# Without TLS, which nothing here uses: half the time to build.
SIM     = $(CARGO) bench --locked --no-default-features --bench sim --

sim: ## random stories of a whole fleet in memory: SEEDS=1000 of FAULTS=40 each, or SEED=n with its trace
	$(SIM) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) --faults $(FAULTS)

explore: ## every interleaving of the small case: EVENTS=3, TICKS=6
	$(SIM) --explore --events $(or $(EVENTS),3) --ticks $(or $(TICKS),6)

faults: setup ## networks, Redis, processes and clocks really fail, as root (3 minutes; ONLY=name)
	@scripts/setup unshare ip iptables tc cc
	$(CARGO) bench --locked --bench faults -- $(ONLY)

topologies: setup ## Sentinels and clusters fail over, are cut in two, move slots, as root (4 minutes; ONLY=name)
	@scripts/setup unshare ip iptables tc
	$(CARGO) bench --locked --bench topologies -- $(ONLY)

systemd: setup ## the unit under real systemds on five VMs: kill, freeze, restart, upgrade, power-off; as root (3 minutes)
	$(CARGO) bench --locked --bench systemd

stress: setup ## 64 instances, 5,000 endpoints, kills and freezes at random (FOR=10m SEED=1)
	$(CARGO) bench --locked --bench stress -- $(or $(FOR),10m) $(or $(SEED),1)

threads: setup ## 64 threads on two LeaseManagers, and a poller that panics: one owner, one answer, no zombie (2 minutes; FOR=60s ONLY=owners)
	$(CARGO) bench --locked --bench threads -- $(or $(FOR),60s) $(ONLY)

scale: setup ## 100,000 sessions on ten daemons next to their Redis: start, rest, polls, a crash, starved (50 minutes; FOR=10m ONLY=rest BLESS=1)
	$(CARGO) bench --locked --bench scale -- $(or $(FOR),10m) $(ONLY)

mutants: setup ## plant deliberate bugs one by one, and see which test notices (over an hour)
	scripts/mutants -j2

demo: setup ## four instances, a private Redis, four mishaps: about half a minute
	$(CARGO) build --locked --quiet --bin leasehold --example demo
	@$(TARGET)/debug/examples/demo

picture: setup ## draw docs/load.svg anew: load per instance through join, crash, drain, restart
	$(CARGO) build --locked --quiet --bin leasehold --example demo
	@$(TARGET)/debug/examples/demo --picture docs/load.svg

setup: ## get redis-server (for tests, benchmark and demo) if it is missing
	@scripts/setup redis-server

install: ## binary, systemd units, man page, completions, example settings, alerts, dashboard (PREFIX, DESTDIR)
	@test -x $(TARGET)/release/leasehold || $(MAKE) build
	install -D -m 755 $(TARGET)/release/leasehold $(DESTDIR)$(PREFIX)/bin/leasehold
	install -D -m 644 systemd/leasehold.env.example $(ETC)/leasehold.env.example
	install -D -m 644 -t $(MONITORING) monitoring/alerts.yml monitoring/grafana.json
	install -d $(UNITS) $(dir $(MAN)) $(dir $(COMPLETIONS))
	for unit in leasehold.service leasehold@.service; do \
	  sed 's|/usr/local/bin|$(PREFIX)/bin|' systemd/$$unit >$(UNITS)/$$unit || exit; done
	$(TARGET)/release/leasehold man >$(MAN)
	$(TARGET)/release/leasehold completions bash >$(word 1,$(COMPLETIONS))
	$(TARGET)/release/leasehold completions zsh >$(word 2,$(COMPLETIONS))
	$(TARGET)/release/leasehold completions fish >$(word 3,$(COMPLETIONS))

uninstall: ## take away what install put there; your settings stay
	rm -f $(DESTDIR)$(PREFIX)/bin/leasehold $(UNITS)/leasehold.service $(UNITS)/leasehold@.service
	rm -f $(MAN) $(COMPLETIONS) $(ETC)/leasehold.env.example
	rm -rf $(MONITORING)
	-rmdir --ignore-fail-on-non-empty $(ETC)

deb: build ## a package for Debian 12 and later, target/leasehold_VERSION_ARCH.deb
	scripts/deb $(TARGET)
