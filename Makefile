# make run · test · lint · bench. Each target installs what it misses, where it may (as root, with apt); without root or
# network it says what is missing and goes on with what is there.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
export PATH := $(PATH):$(HOME)/.cargo/bin:$(CURDIR)/target/tools/bin:/usr/local/go/bin

# As in Cargo.toml: rust-version.
RUST := 1.95

# What is needed, as command:package. A C compiler links.
BUILD_TOOLS := cc:gcc
TEST_TOOLS  := $(BUILD_TOOLS) flock:util-linux qemu-system-x86_64:qemu-system-x86 libvirtd:libvirt-daemon-system \
               virsh:libvirt-clients linux.uml:user-mode-linux valgrind:valgrind busybox:busybox-static mke2fs:e2fsprogs \
               cpio:cpio pgrep:procps readelf:binutils perl:perl-base python3:python3 numpy:python3-numpy node:nodejs \
               go:golang-go systemd-analyze:systemd man:man-db tmux:tmux script:bsdutils \
               metrics-parser:python3-prometheus-client gfortran:gfortran

# ksmtuned is only unpacked here, never installed: its package would start it, and it would take KSM over.
PEERS := target/peers

# tuned with the Python modules that it needs, for the same reason.
TUNED := target/tuned
TUNED_PACKAGES := tuned python3-dbus python3-ethtool python3-gi python3-linux-procfs python3-pyudev

# A kernel for guests of QEMU, with its balloon driver: only unpacked too, so that the host never boots it.
GUEST_KERNEL := target/guest-kernel

# Kernels of several versions for `make matrix`: only unpacked as well.
MATRIX := target/matrix

.PHONY: deb rpm tarball image package package-test reproducible
.PHONY: help run test matrix faults soak stress fuzz guest-unit lint bench rust build-tools test-tools vendor-uplot \
        page-test page-live-test alerts-test dashboard dashboard-test kubernetes-test docs tutorial-test \
        fleet-test fleet-spark-test fleet-platforms-test

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\): .*## /make \1\t/p' Makefile | expand -t 21

run: rust build-tools ## Build ksmith and run its demo (ARGS='--json' passes options on)
	cargo build --release -p ksmith
	cargo run --quiet --release -p ksmith -- demo $(ARGS)

test: rust test-tools $(PEERS) $(TUNED) $(GUEST_KERNEL) ## Check format and lints, and run every test; those on the live kernel need root
	cargo fmt --all --check
	rustfmt --check --edition 2024 host/src/hypervisor/*/mod.rs # declared by a macro, which cargo fmt does not look into
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --workspace --no-run
	@$(MAKE) --no-print-directory page-live-test dashboard-test alerts-test kubernetes-test fleet-test
	@if [ -e $(PEERS)/usr/sbin/ksmtuned ]; then export KSMTUNED=$(CURDIR)/$(PEERS)/usr/sbin/ksmtuned; fi; \
	export GUEST_KERNEL=$(CURDIR)/$(GUEST_KERNEL); \
	$(suite)

# The tests on the live kernel queue for its one KSM, so the others run beside them. A shell has what it starts in the
# background ignore SIGINT and SIGQUIT, which env undoes. Where KSM is there for us, continuous integration lets no test skip.
define suite
mkdir -p target; status=0; log=target/test.log; run='cargo test --workspace --no-fail-fast'; \
echo "the tests on the live kernel run in the background and are shown at the end: target/test-live.log"; \
env --default-signal=INT,QUIT $$run --test live > target/test-live.log 2>&1 & live=$$!; \
$$run --lib --bins --test '[!l]*' --test library 2>&1 | tee $$log || status=$$?; \
$$run --doc 2>&1 | tee -a $$log || status=$$?; \
wait $$live || status=$$?; tee -a $$log < target/test-live.log; \
awk '/^test result:/ { passed += $$4; failed += $$6; ignored += $$8 } \
    END { printf "make test: %d passed, %d failed, %d ignored; ", passed, failed, ignored }' $$log; \
skipped=$$(grep -c 'SKIPPED, nothing was tested' $$log) || true; \
echo "$$skipped of those that passed were skipped; $$SECONDS s"; \
if [ "$$skipped" != 0 ] && [ "$${CI:-}" = true ] && [ "$$(id -u)" = 0 ] && [ -e /sys/kernel/mm/ksm/run ]; then \
    echo 'make test: no test may skip here' >&2; status=1; fi; \
exit $$status
endef

# One kernel is among the tests; this is all of them. KSMITH_MATRIX=6.1,none takes these kernels only.
matrix: rust test-tools ## Run every command on Debian's kernels from 5.10 to the newest, and on one without KSM, emulated, and the packages (half an hour)
	@testdata/matrix-kernels $(MATRIX) || echo 'make matrix: checks fail on kernels that are not to be had' >&2
	cargo test -p ksmith --test matrix -- --ignored --nocapture
	@$(MAKE) --no-print-directory package-test

faults: rust test-tools ## Try faults of the host on the daemon, simulated and live; needs root (docs/internals/reliability.md)
	cargo test -p ksmith-host every_fail_point
	cargo test -p ksmith-service every_fault_of_the_host
	cargo test -p ksmith --test live faults -- --include-ignored

# As an option a day: SOAK_SECONDS=86400.
SOAK_SECONDS := 3600
soak: rust test-tools ## Run a daemon with everything on among guests that churn, and see that its use is flat; needs root (SOAK_SECONDS=3600)
	SOAK_SECONDS=$(SOAK_SECONDS) cargo bench -p ksmith --bench soak

# PART=everything is all at once, PART=attacks each race by itself and all under `ksmith run`, PART=qemu a guest of QEMU.
STRESS_SECONDS := 3600
PART := everything
stress: rust test-tools $(GUEST_KERNEL) ## Fold programs under everything that may write to their memory; needs root (STRESS_SECONDS=3600 PART=everything)
	STRESS_SECONDS=$(STRESS_SECONDS) FOLD_QEMU_SECONDS=$(STRESS_SECONDS) GUEST_KERNEL=$(CURDIR)/$(GUEST_KERNEL) \
	    cargo test --release -p ksmith --test live for_long_$(PART) -- --ignored --nocapture

# A search starts from the kept corpus and leaves what it found in target/fuzz; `make fuzz KEEP=1` keeps the least of that
# which reaches as much.
FUZZ_SECONDS := 60
fuzz: rust ## Search every parser of others' bytes for panics, guided by coverage (FUZZ_SECONDS=60 for each)
	@$(call install,cc:gcc c++:g++)
	@cargo fuzz --version > /dev/null 2>&1 || { echo 'installing cargo-fuzz into target/tools'; \
	    cargo install --quiet --locked --root target/tools cargo-fuzz; }
	@export RUSTC_BOOTSTRAP=1; cargo fuzz build; status=0; \
	for target in $$(cargo fuzz list); do \
	    found=target/fuzz/$$target; kept=fuzz/corpus/$$target; mkdir -p "$$found" "$$kept"; \
	    cargo fuzz run $$target "$$found" "$$kept" -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1 \
	        > "$$found.log" 2>&1 || { status=1; tail -n 40 "$$found.log" >&2; }; \
	    awk -v target=$$target '/^stat::number_of_executed_units/ { units = $$2 } / cov: / { edges = $$0; \
	        sub(/.* cov: /, "", edges); sub(/ .*/, "", edges) } \
	        END { printf "%-10s %12d executions, %6d edges\n", target, units, edges }' "$$found.log"; \
	    if [ -n "$(KEEP)" ]; then \
	        rm -rf "$$found.least"; mkdir "$$found.least"; \
	        cargo fuzz run $$target "$$found.least" "$$kept" "$$found" -- -set_cover_merge=1 -use_counters=0 \
	            > "$$found.merge.log" 2>&1 && rm -r "$$kept" && mv "$$found.least" "$$kept" || status=1; fi; \
	done; exit $$status

guest-unit: rust build-tools ## Try the systemd unit in a Debian guest, emulated; needs root (some minutes)
	@$(call install,mmdebstrap:mmdebstrap qemu-system-x86_64:qemu-system-x86 mke2fs:e2fsprogs strip:binutils)
	cargo build --release -p ksmith
	packaging/tests/guest-unit target/release/ksmith target/guest-unit

# The page is tried over a mock of its server, and as ksmith serve sends it. Neither KSM nor root is needed.
page-test: rust build-tools ## Try the web page in a real Chromium (serve/tests/page)
	@$(call install,node:nodejs npm:npm chromium:chromium)
	cargo build -p ksmith
	@if command -v npm > /dev/null && command -v chromium > /dev/null; then \
	    (cd serve/tests/page && npm ci --silent && npm test --silent) 2>&1 | tee target/page-test.log && $(call none_skipped,page-test); \
	else $(call skipped,page-test,npm or chromium); fi

page-live-test: page-test ## Try the page over a real daemon and live guests too; needs root and KSM
	@if [ -e serve/tests/page/node_modules ]; then \
	    lock=; [ "$$(id -u)" != 0 ] || lock='flock /run/lock/ksmith-kernel.lock'; \
	    (cd serve/tests/page && KSMITH_LIVE=1 $$lock npm run --silent live) 2>&1 | tee target/page-live-test.log \
	        && $(call none_skipped,page-live-test); fi

# Needs PyPI once.
kubernetes-test: ## Check the manifests in packaging/kubernetes against the schemas of Kubernetes
	@if command -v python3 > /dev/null && python3 -c 'import ensurepip' 2> /dev/null; then packaging/tests/kubernetes target || \
	    { code=$$?; [ $$code = 77 ] || exit $$code; $(call skipped,kubernetes-test,kubernetes-validate of PyPI); }; \
	else $(call skipped,kubernetes-test,python3 with venv); fi

# Prometheus is only unpacked, never installed: its package would start it.
PROMETHEUS := target/prometheus
alerts-test: rust build-tools $(PROMETHEUS) ## Try the rules, and the dashboard's queries, in a real Prometheus; needs root
	@$(call install,node:nodejs ip:iproute2)
	cargo build -p ksmith
	@if [ -e $(PROMETHEUS)/usr/bin/prometheus ]; then bin=$(CURDIR)/$(PROMETHEUS)/usr/bin; else bin=$$(dirname "$$(command -v promtool || echo .)"); fi; \
	if [ -e "$$bin/promtool" ] && command -v node > /dev/null; then \
	    "$$bin/promtool" check rules packaging/prometheus/ksmith.rules.yml && (cd packaging/prometheus && "$$bin/promtool" test rules ksmith.rules.test.yml) \
	        && (PROMETHEUS="$$bin/prometheus" node --test packaging/tests/alerts.test.mjs 2>&1 | tee target/alerts-test.log) \
	        && $(call none_skipped,alerts-test); \
	else $(call skipped,alerts-test,promtool or node); fi

$(PROMETHEUS):
	@mkdir -p $@; command -v promtool > /dev/null && exit 0; \
	if command -v apt-get > /dev/null && (cd $@ && apt-get download -q prometheus > /dev/null 2>&1); then \
	    dpkg -x $@/prometheus_*.deb $@; rm -f $@/prometheus_*.deb; \
	else rmdir $@; echo 'no Prometheus here and none to be had: its tests skip' >&2; fi

dashboard: ## Make the Grafana dashboard from packaging/grafana/dashboard.ts, which its types check
	@$(call install,node:nodejs npm:npm)
	@cd packaging/grafana && npm ci --silent && npm run --silent build && node node_modules/.made/dashboard.js > ksmith.json

dashboard-test: ## See that the committed dashboard is the one that dashboard.ts makes
	@$(call install,node:nodejs npm:npm)
	@if command -v npm > /dev/null; then cd packaging/grafana && npm ci --silent && npm run --silent build \
	        && node node_modules/.made/dashboard.js | cmp - ksmith.json && echo 'the dashboard is the one that dashboard.ts makes'; \
	else $(call skipped,dashboard-test,npm); fi

# A check that can't run says so as the tests in Rust do; where continuous integration runs as root, none may skip.
skipped = echo 'make $(1): SKIPPED, nothing was tested: there is no $(2) here' >&2; [ "$${CI:-}" != true ] || [ "$$(id -u)" != 0 ]

none_skipped = { ! grep -q '\# SKIP' target/$(1).log || [ "$${CI:-}" != true ] || [ "$$(id -u)" != 0 ] || { echo 'make $(1): no test may skip here' >&2; false; }; }

# The page's charts. The files are committed, so that a build needs no network; this puts the pinned release there.
UPLOT := 1.6.32
UPLOT_SHA512 := 2883159c6ebccefbb95d751b0b82d010f9e1c0ec41b8bc96d401eda66e882935c89a46cb824332fa369b8cb8122cc6ac36e186cd09bf7a9ded3a4c93c6989023
vendor-uplot: ## Fetch the page's charting library by npm, check it, and put it among the page's assets
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	(cd "$$dir" && npm pack --silent uplot@$(UPLOT) > /dev/null && echo "$(UPLOT_SHA512)  uplot-$(UPLOT).tgz" | sha512sum --check --quiet \
	    && tar -xzf uplot-$(UPLOT).tgz); \
	for file in dist/uPlot.iife.min.js dist/uPlot.min.css; do cp "$$dir/package/$$file" serve/assets/; done; \
	cp "$$dir/package/LICENSE" serve/assets/uPlot.LICENSE.txt; (cd serve/assets && sha256sum uPlot.*)

# Tools of packaging, as command:crate:features, built without optimisation: each takes about a minute, and no build depends on
# their speed.
PACKAGE_TOOLS := deb:cargo-deb@3.8.0 auditable:cargo-auditable@0.7.7 generate-rpm:cargo-generate-rpm@0.21.1 cyclonedx:cargo-cyclonedx@0.5.9 about:cargo-about@0.9.3:cli

package: rust build-tools ## Build the program and the libraries as packages hold them, with an SBOM (packaging/README.md)
	@for tool in $(PACKAGE_TOOLS); do IFS=: read -r name crate features <<< "$$tool"; \
	    command -v "cargo-$$name" > /dev/null || { echo "installing $$crate into target/tools"; \
	    cargo install --quiet --locked --debug --root target/tools --target-dir target/tools/build $${features:+--features "$$features"} "$$crate"; }; done
	packaging/build

deb: package ## Make the package for Debian 12 and later: target/package/ksmith_VERSION_ARCH.deb
	@$(call install,dpkg-shlibdeps:dpkg-dev lintian:lintian)
	packaging/deb/make
	lintian --allow-root --fail-on error,warning target/package/ksmith_*.deb

rpm: package ## Make the package for Fedora and its relatives: target/package/ksmith-VERSION-1.ARCH.rpm
	@$(call install,rpm:rpm rpmlint:rpmlint)
	packaging/rpm/make
	rpmlint --config packaging/rpm/rpmlint.toml target/package/ksmith-*.rpm

tarball: package ## Make the archive for any other distribution: target/package/ksmith-VERSION-ARCH.tar.gz
	packaging/tarball/make

image: package ## Make an OCI image: target/package/ksmith-VERSION-ARCH.oci.tar; needs root
	@$(call install,mmdebstrap:mmdebstrap buildah:buildah)
	packaging/image/make

package-test: deb rpm tarball image ## Install, upgrade, remove and purge the packages in trees and in a Debian guest; needs root (some minutes)
	@$(call install,mmdebstrap:mmdebstrap systemd-nspawn:systemd-container podman:podman runc:runc curl:curl yaml-of-python:python3-yaml qemu-system-x86_64:qemu-system-x86 mke2fs:e2fsprogs)
	packaging/tests/package-checks
	packaging/tests/daemonset target/package/ksmith-*.oci.tar || [ $$? = 77 ]
	packaging/tests/guest-deb-upgrade
	GUEST_PACKAGES=tuned packaging/tests/guest-deb packaging/tests/hand-over-checks target/package/ksmith_*.deb

reproducible: package ## Build a second time in another directory, and see that all packages are the same, bit by bit (some minutes)
	packaging/tests/reproducible

# Fast checks of the pages (links, commands, lengths, what is generated) are tests: cargo test -p ksmith --test docs.
MDBOOK := 0.5.4
docs: rust build-tools ## Build the documentation as a site in target/docs, and check its links
	@[ "$$(target/tools/bin/mdbook --version 2> /dev/null)" = "mdbook v$(MDBOOK)" ] || { echo 'installing mdbook into target/tools'; \
	    cargo install --quiet --locked --root target/tools --no-default-features mdbook@$(MDBOOK); }
	target/tools/bin/mdbook build docs
	packaging/site-links target/docs

tutorial-test: deb ## Run the tutorial from start to end in a Debian guest with systemd, emulated; needs root (some minutes)
	@$(call install,mmdebstrap:mmdebstrap qemu-system-x86_64:qemu-system-x86 mke2fs:e2fsprogs)
	packaging/tests/tutorial target/package/ksmith_*.deb

# The fleet's package in Python lives in an environment of its own. Spark is a large download, so its test is a target of its own.
FLEET := target/fleet-venv
$(FLEET)/installed: fleet/pyproject.toml
	@$(call install,python3:python3)
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'ksmith-fleet needs Python 3.11 or later' >&2; exit 1; }
	@python3 -c 'import ensurepip' 2> /dev/null || { $(call install,ensurepip-of-python:python3-venv); }
	@python3 -m venv $(FLEET)
	@$(FLEET)/bin/pip install --quiet --disable-pip-version-check -e 'fleet[dev]' && touch $@

fleet-test: $(FLEET)/installed ## Check and test ksmith-fleet, the package in Python that plans over many hosts
	cd fleet && ../$(FLEET)/bin/ruff check . && ../$(FLEET)/bin/ruff format --check . && ../$(FLEET)/bin/mypy && ../$(FLEET)/bin/pytest

fleet-spark-test: $(FLEET)/installed ## Compare Spark's answers with DuckDB's; needs Java and downloads Spark (456 MB)
	@$(call install,java:default-jre-headless)
	$(FLEET)/bin/pip install --quiet --disable-pip-version-check -e 'fleet[spark]'
	cd fleet && ../$(FLEET)/bin/pytest -m spark

fleet-platforms-test: $(FLEET)/installed ## Check what fleet's apply runs by the parsers of OpenStack and KubeVirt; needs Go
	@$(call install,go:golang-go)
	$(FLEET)/bin/pip install --quiet --disable-pip-version-check -e 'fleet[platforms]'
	cd fleet && ../$(FLEET)/bin/pytest -m platforms

lint: rust build-tools ## Check format, lints, documentation, and the licences of dependencies
	cargo fmt --all --check
	rustfmt --check --edition 2024 host/src/hypervisor/*/mod.rs # declared by a macro, which cargo fmt does not look into
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' cargo doc --workspace --no-deps --quiet
	@cargo deny --version > /dev/null 2>&1 || { echo 'installing cargo-deny into target/tools'; \
	    cargo install --quiet --locked --root target/tools cargo-deny; }
	cargo deny --workspace check licenses bans sources
	@if cargo deny --workspace fetch > /dev/null 2>&1; then cargo deny --workspace check advisories; \
	    else echo 'the advisory database is out of reach: known vulnerabilities were not checked' >&2; fi

bench: rust build-tools ## Run the benchmarks
	cargo bench --workspace

# A toolchain can't come from apt: Debian 12's rustc is 1.63.
rust:
	@if ! command -v cargo > /dev/null; then \
	    echo 'ksmith is written in Rust $(RUST), and there is no cargo here. Install it from https://rustup.rs :' >&2; \
	    echo "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --default-toolchain $(RUST)" >&2; \
	    echo "(Debian 12's own rustc is 1.63, which is too old.) Then run make again." >&2; exit 1; fi
	@have=$$(rustc --version | cut -d' ' -f2); \
	if [ "$$(printf '%s\n' $(RUST) "$$have" | sort -V | head -n 1)" != $(RUST) ]; then \
	    echo "ksmith needs Rust $(RUST) or later; this is $$have. Run: rustup update stable" >&2; exit 1; fi
	@for part in fmt:rustfmt clippy:clippy; do \
	    cargo $${part%%:*} --version > /dev/null 2>&1 || rustup component add $${part##*:}; done

build-tools:
	@$(call install,$(BUILD_TOOLS))

test-tools:
	@$(call install,$(TEST_TOOLS))

# Installs the packages of those commands that are not there.
define install
has() { case $$1 in numpy) python3 -c 'import numpy' || /usr/bin/python3 -c 'import numpy';; \
    metrics-parser) /usr/bin/python3 -c 'import prometheus_client';; \
    yaml-of-python) /usr/bin/python3 -c 'import yaml';; *) command -v "$$1";; esac > /dev/null 2>&1; }; \
packages=; for tool in $(1); do has "$${tool%%:*}" || packages="$$packages $${tool##*:}"; done; \
if [ -z "$$packages" ]; then exit 0; fi; \
if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
    echo "installing$$packages"; export DEBIAN_FRONTEND=noninteractive; \
    { apt-get install -yq --no-install-recommends $$packages || { apt-get update -q && apt-get install -yq --no-install-recommends $$packages; }; } < /dev/null && exit 0; \
fi; \
echo "missing:$$packages (install them as root); what needs them fails or skips, and says so" >&2
endef

$(PEERS):
	@mkdir -p $@; command -v ksmtuned > /dev/null && exit 0; \
	if command -v apt-get > /dev/null && (cd $@ && apt-get download -q ksmtuned > /dev/null 2>&1); then \
	    dpkg -x $@/ksmtuned_*.deb $@; rm -f $@/ksmtuned_*.deb; \
	else rmdir $@; echo 'no ksmtuned here and none to be had: tests against it skip' >&2; fi

$(TUNED):
	@mkdir -p $@; \
	if command -v apt-get > /dev/null && (cd $@ && apt-get download -q $(TUNED_PACKAGES) > /dev/null 2>&1); then \
	    for package in $@/*.deb; do dpkg -x $$package $@; done; rm -f $@/*.deb; \
	else rm -rf $@; echo 'no tuned to be had: tests against it skip' >&2; fi

$(GUEST_KERNEL):
	@mkdir -p $@; package=$$(apt-cache depends linux-image-cloud-amd64 2> /dev/null | sed -n 's/^ *Depends: //p' | head -n 1) || true; \
	if [ -n "$$package" ] && (cd $@ && apt-get download -q "$$package" > /dev/null 2>&1); then \
	    dpkg --fsys-tarfile $@/*.deb | tar -x -C $@ --wildcards './boot/vmlinuz-*' './lib/modules/*/kernel/drivers/virtio/*' \
	        './lib/modules/*/kernel/drivers/block/virtio_blk.ko'; \
	    rm -f $@/*.deb; \
	else rmdir $@; echo 'no kernel for guests to be had: tests of the balloon skip' >&2; fi
