# Everything here works in a fresh clone: a target first brings what it needs. `make` alone lists the targets.

# One worker more than there are cores: a third of the time, tests wait for processes that they have started.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)
ARGS ?=
# What `make test-slow` draws depends on it.
DRAW ?= $(shell git rev-parse --short HEAD 2>/dev/null)

PYTHON := .venv/bin/python
# No test may hang a build: the limit is seconds for one test, its fixtures included.
PYTEST := .venv/bin/pytest --timeout 300 --dist worksteal
SYNCED := .venv/.synced
JVM_ARCHIVE := .venv/share/destination-datalake/spark.jsa
# The native library, for each architecture that the wheel and the image are for.
NATIVE := $(patsubst %,destination_datalake/_native.%.so,x86_64 aarch64)

# A test run is dozens of processes: without byte code each would compile the connector, and workers rewrite all assertions.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup jdk demo docs test test-slow test-all test-unit test-emulator test-engines test-cluster test-clients test-catalogs test-report conformance chaos fuzz coverage lint types bench archive sbom image-test clean FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(SYNCED) $(NATIVE) ## create .venv: the connector, its console script and the dev tools; compile native/

# The stamp says that .venv is what uv.lock asks for; an environment whose Python has gone is made again.
$(SYNCED): pyproject.toml uv.lock emulated_aws/pyproject.toml scripts/setup.sh scripts/uv.txt $(if $(wildcard .venv/bin/python),,FORCE)
	scripts/setup.sh
	@touch $@

$(NATIVE): native/build.sh $(wildcard native/*.[ch]) $(SYNCED)
	native/build.sh $(PYTHON) $@

jdk: # Spark needs a Java 17 or newer
	@scripts/jdk.sh

demo: jdk setup ## run spec, check and a sync against an embedded AWS (FORMAT=jsonl, TABLE_TYPE=hive, ARCHIVE=1, KEEP=1)
	$(PYTHON) -m demo

test: jdk setup $(JVM_ARCHIVE) ## run the tests that see every kind of defect (WORKERS=3 processes, ARGS="--durations=25")
	$(PYTEST) -n $(WORKERS) -m "not slow" $(ARGS)

test-slow: jdk setup $(JVM_ARCHIVE) ## run a draw of all other tests, and laws on more examples (DRAW=commit SLICES=1, WORKERS, ARGS)
	EXAMPLES=more DRAW=$(DRAW) $(PYTEST) -n $(WORKERS) -m "slow or law" $(ARGS)

test-all: jdk setup $(JVM_ARCHIVE) ## run every test, and laws on all examples; downloads another reader of tables (ARGS="-m law")
	$(PYTHON) -m unit_tests.laws.dedup.extension.environment
	EXAMPLES=all $(PYTEST) --timeout 1800 -n $(WORKERS) $(ARGS)

test-unit: setup ## run all tests that need no Java and no network (WORKERS)
	$(PYTEST) unit_tests -n $(WORKERS)

test-emulator: setup ## run the tests of the emulated AWS (WORKERS)
	$(PYTEST) emulated_aws/tests -n $(WORKERS) $(ARGS)

conformance: jdk setup $(JVM_ARCHIVE) ## try what the platform can send, and write build/conformance.md of it
	mkdir -p build
	$(PYTEST) integration_tests/conformance -n $(WORKERS) -p integration_tests.conformance.coverage \
		--conformance-report build/conformance.md $(ARGS)

test-engines: jdk setup ## compare partitions with Spark and the Iceberg runtime, which it downloads
	$(PYTEST) integration_tests/engines $(ARGS)

test-cluster: jdk setup ## run syncs on clusters of processes that share no disk; Linux, as root or with user namespaces
	$(PYTHON) -m integration_tests.cluster.harness.environments
	$(PYTEST) integration_tests/cluster -n 3 --dist loadgroup $(ARGS)

test-clients: jdk setup $(JVM_ARCHIVE) ## sync with PyAirbyte, source-faker and orchestrators, which it downloads, into an embedded AWS
	$(PYTHON) -m integration_tests.clients.environments
	$(PYTEST) --timeout 1000 integration_tests/clients -n 2 $(ARGS)

test-report: setup ## look at the page of reports in a browser, which it installs as root on Debian (CHROME=path)
	@scripts/browser.sh
	$(PYTEST) integration_tests/reports/test_page.py -n $(WORKERS) $(ARGS)

test-catalogs: jdk setup $(JVM_ARCHIVE) ## sync into REST catalogs, and ask Iceberg's own, which it downloads, what the tests' says
	$(PYTHON) -m integration_tests.catalogs.reference.jars
	$(PYTEST) integration_tests/catalogs --iceberg-catalog .catalogs -n $(WORKERS) $(ARGS)
	$(PYTEST) $(addprefix integration_tests/conformance/,airbyte dedup failures records tables) integration_tests/archive \
		--rest-catalog -k iceberg -n $(WORKERS) $(ARGS)

chaos: jdk setup $(JVM_ARCHIVE) ## kill, refuse and overtake syncs at random (SECONDS=600 SEED=1, ARGS="--histories 500")
	$(PYTHON) -m integration_tests.chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: setup ## run native/ on random lines, with sanitizers; KEEP=1 renews native/corpus (SECONDS=60 SEED=1)
	@rm -rf build/fuzz/kept && mkdir -p build/fuzz/kept
	native/fuzz.sh $(PYTHON) -t $(or $(SECONDS),60) -s $(or $(SEED),1) -k build/fuzz/kept native/corpus/*
	$(if $(KEEP),rm native/corpus/* && mv build/fuzz/kept/* native/corpus/)

coverage: setup ## run the unit tests and require the branch coverage that pyproject.toml sets
	$(PYTEST) unit_tests -n $(WORKERS) -m "not slow" --cov --cov-report term:skip-covered

docs: setup ## build the documentation's site into build/site; broken links and pages outside the navigation fail
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet

lint: setup docs ## check style, formatting, spelling, CloudFormation, documentation, and which room imports which
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/typos
	.venv/bin/lint-imports --no-logo
	.venv/bin/cfn-lint infra/cloudformation/*.yaml

types: setup ## check types, strictly
	.venv/bin/mypy

bench: jdk setup ## measure throughput, memory and start-up (ARGS="--quick")
	$(PYTHON) -m benchmarks $(ARGS)

archive: $(JVM_ARCHIVE) ## write the JVM's class-data archive, which makes Spark start sooner

# A JVM that it does not fit ignores it, and one that cannot write it is as good for tests.
$(JVM_ARCHIVE): $(SYNCED) | jdk
	-$(PYTHON) -m destination_datalake.spark.classic.jvm_archive

sbom: setup ## write build/sbom.cdx.json: the image's Python packages, with hashes (CycloneDX 1.5)
	@mkdir -p build
	.uv/bin/uv export --no-cache --quiet --frozen --no-dev --format cyclonedx1.5 --preview-features sbom-export -o build/sbom.cdx.json

image-test: jdk setup ## as root, with debootstrap: follow the Dockerfile in a chroot and run the connector there
	$(PYTHON) -m image.replay

clean: ## remove what the other targets made, .venv included
	rm -rf .venv .uv .catalogs .cluster .clients .references .judge dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis $(NATIVE)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
