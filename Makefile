# make check · test · run · lint · bench; each job's program is in tools/. Each target but `check` installs what it misses, where
# it may (as root, with apt); without root or network it says what is missing and goes on with what is there.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
export PATH := $(PATH):$(HOME)/.cargo/bin:$(CURDIR)/target/tools/bin:/usr/local/go/bin

# Packages that are only unpacked (tools/unpack).
PEERS        := target/peers
TUNED        := target/tuned
GUEST_KERNEL := target/guest-kernel
PROMETHEUS   := target/prometheus
# The environment of the fleet's package in Python.
FLEET        := target/fleet-venv

.PHONY: help check run test matrix faults soak stress fuzz guest-unit lint bench rust build-tools test-tools vendor-uplot screens \
        page-test page-live-test alerts-test dashboard dashboard-test kubernetes-test docs tutorial-test \
        fleet-test fleet-platforms-test slurm-test mpi-test deb rpm tarball repository wheels image package package-test reproducible

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\): .*## /make \1\t/p' Makefile | expand -t 21
check: ## Check format, lints, and the tests that need neither root nor packages; installs nothing
	@tools/check
run: rust build-tools ## Build ksmith and run its demo (ARGS='--json' passes options on)
	cargo build --release -p ksmith
	cargo run --quiet --release -p ksmith -- demo $(ARGS)
test: rust test-tools $(PEERS) $(TUNED) $(GUEST_KERNEL) ## Check format and lints, and run every test; those on the live kernel need root
	@tools/groups live > /dev/null
	@tools/style
	cargo test --workspace --no-run
	@KSMITH_IS_BUILT=1 $(MAKE) --no-print-directory page-live-test dashboard-test alerts-test kubernetes-test fleet-test
	@tools/suite

matrix: rust test-tools ## Run every command on Debian's kernels from 5.10 to the newest, and on one without KSM, emulated, and the packages (half an hour; KSMITH_MATRIX=6.1,none takes these only)
	@tools/matrix
	@$(MAKE) --no-print-directory package-test
faults: rust test-tools ## Try faults of the host on the daemon, simulated and live; needs root (docs/internals/reliability.md)
	@tools/faults
# As an option a day: SOAK_SECONDS=86400.
SOAK_SECONDS := 3600
soak: rust test-tools ## Run a daemon with everything on among guests that churn, and see that its use is flat; needs root (SOAK_SECONDS=3600)
	SOAK_SECONDS=$(SOAK_SECONDS) cargo bench -p ksmith --bench soak
# PART=everything is all at once, PART=attacks each race by itself and all under `ksmith run`, PART=qemu a guest of QEMU.
STRESS_SECONDS := 3600
PART := everything
stress: rust test-tools $(GUEST_KERNEL) ## Fold programs under everything that may write to their memory; needs root (STRESS_SECONDS=3600 PART=everything)
	STRESS_SECONDS=$(STRESS_SECONDS) FOLD_QEMU_SECONDS=$(STRESS_SECONDS) GUEST_KERNEL=$(CURDIR)/$(GUEST_KERNEL) cargo test --release -p ksmith --test live for_long_$(PART) -- --ignored --nocapture
fuzz: rust ## Search every parser of others' bytes for panics, guided by coverage (FUZZ_SECONDS=60 for each; KEEP=1 renews the corpus)
	@tools/fuzz
guest-unit: rust build-tools ## Try the systemd unit in a Debian guest, emulated; needs root (some minutes)
	@tools/guest-unit

# Pages, manifests, alerts and the dashboard. `make test` runs these.
page-test: rust build-tools ## Try the web page in a real Chromium (serve/tests/page)
	@tools/page-test
page-live-test: page-test ## Try the page over a real daemon and live guests too; needs root and KSM
	@tools/page-test live
screens: rust build-tools $(GUEST_KERNEL) ## Take the pictures of docs/figures from ten minutes of six QEMU guests, and play the lab; needs root (ARGS='--minutes 2 --no-lab')
	@tools/install qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio tmux:tmux node:nodejs npm:npm chromium:chromium
	cargo build --release -p ksmith
	cd serve/tests/page && npm ci --silent
	tools/screens $(ARGS)
kubernetes-test: ## Check the manifests in packaging/kubernetes against the schemas of Kubernetes
	@tools/kubernetes-test
alerts-test: rust build-tools $(PROMETHEUS) ## Try the rules, and the dashboard's queries, in a real Prometheus; needs root
	@tools/alerts-test
dashboard: ## Make the Grafana dashboard from packaging/grafana/dashboard.ts, which its types check
	@tools/dashboard
dashboard-test: ## See that the committed dashboard is the one that dashboard.ts makes
	@tools/dashboard test
vendor-uplot: ## Fetch the page's charting library by npm, check it, and put it among the page's assets
	@tools/vendor-uplot

# Packages.
package: rust build-tools ## Build the program and the libraries as packages hold them, with an SBOM (packaging/README.md)
	@tools/package-tools
	packaging/build
deb: package ## Make the packages for Debian 12 and later: ksmith_VERSION_ARCH.deb and five more in target/package
	@tools/install dpkg-shlibdeps:dpkg-dev lintian:lintian
	packaging/deb/make
	lintian --allow-root --fail-on error,warning target/package/*.deb
rpm: package ## Make the package for Fedora and its relatives: target/package/ksmith-VERSION-1.ARCH.rpm
	@tools/install rpm:rpm rpmlint:rpmlint
	packaging/rpm/make
	rpmlint --config packaging/rpm/rpmlint.toml target/package/ksmith-*.rpm
tarball: package ## Make the archive for any other distribution: target/package/ksmith-VERSION-ARCH.tar.gz
	packaging/tarball/make
# Where the repository is made, and the address that hosts will find it at.
REPOSITORY := target/repository
URL :=
KEY :=
repository: ## Make an apt repository from the debs, signed by your key: KEY=FINGERPRINT URL=https://… (REPOSITORY=target/repository)
	@tools/install apt-ftparchive:apt-utils gpg:gnupg
	@packaging/repository/make --check "$(KEY)"
	@$(MAKE) --no-print-directory deb
	packaging/repository/make $(REPOSITORY) "$(KEY)" "$(URL)" target/package/*.deb
wheels: $(FLEET)/installed ## Make the wheels for PyPI: ksmith-fleet, and ksmith, the Python module of libksmith
	packaging/wheels/make $(FLEET)/bin/python
image: package ## Make an OCI image: target/package/ksmith-VERSION-ARCH.oci.tar; needs root
	@tools/install mmdebstrap:mmdebstrap buildah:buildah
	packaging/image/make
package-test: deb rpm tarball image wheels ## Install, upgrade, remove and purge the packages in trees and in a Debian guest; needs root (some minutes)
	@tools/package-test
reproducible: package ## Build a second time in another directory, and see that all packages are the same, bit by bit (some minutes)
	packaging/tests/reproducible

# Documentation. `cargo test -p ksmith --test docs` checks its pages fast.
docs: rust build-tools ## Build the documentation as a site in target/docs, and check its links
	@tools/mdbook build docs
	packaging/site-links target/docs
tutorial-test: deb ## Run the tutorial from start to end in a Debian guest with systemd, emulated; needs root (some minutes)
	@tools/install mmdebstrap:mmdebstrap qemu-system-x86_64:qemu-system-x86 mke2fs:e2fsprogs
	packaging/tests/tutorial target/package/ksmith_*.deb

# The fleet's package in Python.
fleet-test: $(FLEET)/installed ## Check and test ksmith-fleet, the package in Python that plans over many hosts
	@tools/fleet-test $(FLEET)
slurm-test: rust ## Run jobs under a Slurm of its own, and check their reports and comments and the settings of KSM; needs root
	@tools/install slurmctld:slurmctld slurmd:slurmd munged:munge srun:slurm-client python3:python3
	cargo build --release -p ksmith
	@tools/slurm-test target/release/ksmith
mpi-test: ## Build and run the example of a table in one window of MPI: the same results, and less memory
	@tools/install mpicc:libopenmpi-dev mpirun:openmpi-bin
	$(MAKE) -C examples/shared-window check
fleet-platforms-test: $(FLEET)/installed ## Check what fleet's apply runs by the parsers of OpenStack and KubeVirt; needs Go
	@tools/fleet-test $(FLEET) platforms go:golang-go

lint: rust build-tools ## Check format, lints, documentation, and the licences of dependencies
	@tools/lint
bench: rust build-tools ## Run the benchmarks
	cargo bench --workspace

# What the targets need.
rust:
	@tools/rust
build-tools: # A C compiler links.
	@tools/install cc:gcc
test-tools:
	@tools/test-tools
$(PEERS) $(TUNED) $(GUEST_KERNEL) $(PROMETHEUS):
	@tools/unpack $(@F) $@
$(FLEET)/installed: fleet/pyproject.toml
	@tools/fleet-venv $(FLEET)
