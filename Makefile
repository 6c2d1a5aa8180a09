# Builds libblip, its header and the blip tool, tests them, installs them. `make help` lists the targets.

SWIFT ?= swift
PYTHON ?= python3
PREFIX ?= /usr/local
DESTDIR ?=
INCLUDEDIR ?= $(PREFIX)/include
LIBDIR ?= $(PREFIX)/lib
BINDIR ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share

VERSION := $(shell awk '/^\#define BLIP_VERSION_(MAJOR|MINOR|PATCH) /{printf "%s%s", s, $$3; s="."}' Include/blip.h)
MAJOR := $(firstword $(subst ., ,$(VERSION)))
LIBRARY := libblip.so.$(VERSION)
SONAME := libblip.so.$(MAJOR)

ROOT := $(CURDIR)
ifneq ($(words $(ROOT)),1)
$(error make cannot work in a folder whose path has spaces: '$(ROOT)')
endif
BUILD := $(ROOT)/build
VENV := $(BUILD)/venv
RESULTS := $(BUILD)/results
export PKG_CONFIG_PATH := $(BUILD)/lib/pkgconfig:$(PKG_CONFIG_PATH)

# Set by packagers: how many compilers at a time, and what stands for this folder in debug information, which then does
# not name files of the compiler's cache either, nor hashes of its input: builds in different folders give the same bytes.
SWIFT_JOBS ?=
BLIP_SOURCE_PATH ?=
SWIFT_BUILD = $(SWIFT) build -c release --disable-local-rpath $(if $(SWIFT_JOBS),--jobs $(SWIFT_JOBS)) \
	$(if $(BLIP_SOURCE_PATH),-Xswiftc -file-prefix-map -Xswiftc $(ROOT)=$(BLIP_SOURCE_PATH) \
	-Xcc -ffile-prefix-map=$(ROOT)=$(BLIP_SOURCE_PATH) \
	-Xswiftc -Xfrontend -Xswiftc -no-clang-module-breadcrumbs \
	-Xswiftc -Xfrontend -Xswiftc -disable-incremental-llvm-codegen)

PARTS := swift c python javascript tool browser interop abi docs conformance fuzz chaos

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
# One Swift build at a time; each uses all cores by itself.
.NOTPARALLEL:

.PHONY: all
all: lib tool man ## build the library, its header, the tool and the manual pages into build/

.PHONY: lib
lib: packages ## build build/lib/libblip.so, build/include/blip.h and build/lib/pkgconfig/blip.pc
	$(SWIFT_BUILD) --product BLIPShared
	scripts/stage-library .build/release/libBLIPShared.so $(BUILD) $(VERSION)
	scripts/substitute packaging/blip.pc.in '$${pcfiledir}/../..' '$${prefix}/include' '$${prefix}/lib' $(VERSION) \
		$(BUILD)/lib/pkgconfig/blip.pc
	scripts/stage-cmake $(BUILD)/lib/cmake/blip $(BUILD)/lib $(BUILD)/include $(VERSION)

.PHONY: tool
tool: lib $(BUILD)/bin/blip ## build build/bin/blip, linked to the library

# Linked twice: in the build tree the tool finds the library beside itself, an installed one where the system looks.
$(BUILD)/bin/blip: $(wildcard Sources/blip/*.swift) Include/blip.h Package.swift | lib
	BLIP_LINK=$(BUILD)/lib $(SWIFT_BUILD) --product blip
	scripts/stage-tool .build/release/blip $(BUILD)/install/blip
	BLIP_LINK=$(BUILD)/lib BLIP_RPATH='$$ORIGIN/../lib' $(SWIFT_BUILD) --product blip
	scripts/stage-tool .build/release/blip $(BUILD)/bin/blip

.PHONY: man
man: ## write a manual page for each function into build/man, from blip.h
	$(PYTHON) scripts/make-manual $(BUILD)/man $(VERSION)

.PHONY: packages
packages:
	@scripts/ensure-packages build

# Paths are written into files, and used by the shell, as they are.
.PHONY: check-prefix
check-prefix:
	@case "$(PREFIX)$(DESTDIR)" in \
	*[[:space:]]*) echo "PREFIX and DESTDIR must not contain spaces: '$(PREFIX)' '$(DESTDIR)'" >&2; exit 1;; esac
	@case "$(PREFIX)" in /*) ;; *) echo "PREFIX must be an absolute path, not '$(PREFIX)'" >&2; exit 1;; esac

.PHONY: install
install: check-prefix ## install below $(DESTDIR)$(PREFIX) what `make` has built
	@test -x $(BUILD)/install/blip || { echo "nothing is built yet: run make first" >&2; exit 1; }
	install -d $(DESTDIR)$(INCLUDEDIR) $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(BINDIR) \
		$(DESTDIR)$(DATADIR)/man/man1 $(DESTDIR)$(DATADIR)/man/man3 $(DESTDIR)$(DATADIR)/man/man7 \
		$(DESTDIR)$(DATADIR)/bash-completion/completions
	install -m 644 Include/blip.h bindings/c/blip_easy.h $(DESTDIR)$(INCLUDEDIR)
	install -m 755 $(BUILD)/lib/$(LIBRARY) $(DESTDIR)$(LIBDIR)/$(LIBRARY)
	ln -sf $(LIBRARY) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libblip.so
	scripts/substitute packaging/blip.pc.in $(PREFIX) $(INCLUDEDIR) $(LIBDIR) $(VERSION) \
		$(DESTDIR)$(LIBDIR)/pkgconfig/blip.pc
	scripts/stage-cmake $(DESTDIR)$(LIBDIR)/cmake/blip $(LIBDIR) $(INCLUDEDIR) $(VERSION)
	install -m 755 $(BUILD)/install/blip $(DESTDIR)$(BINDIR)/blip
	install -m 644 docs/man/blip.1 $(DESTDIR)$(DATADIR)/man/man1/blip.1
	install -m 644 $(BUILD)/man/man3/*.3 $(DESTDIR)$(DATADIR)/man/man3
	install -m 644 $(BUILD)/man/man7/*.7 $(DESTDIR)$(DATADIR)/man/man7
	install -m 644 packaging/blip.bash-completion $(DESTDIR)$(DATADIR)/bash-completion/completions/blip
	@test -n "$(DESTDIR)" || scripts/after-install $(LIBDIR) $(SONAME)

.PHONY: uninstall
uninstall: check-prefix ## remove what install put there
	rm -f $(DESTDIR)$(INCLUDEDIR)/blip.h $(DESTDIR)$(INCLUDEDIR)/blip_easy.h \
		$(DESTDIR)$(LIBDIR)/$(LIBRARY) $(DESTDIR)$(LIBDIR)/$(SONAME) $(DESTDIR)$(LIBDIR)/libblip.so \
		$(DESTDIR)$(LIBDIR)/pkgconfig/blip.pc $(DESTDIR)$(BINDIR)/blip \
		$(DESTDIR)$(DATADIR)/man/man1/blip.1 $(DESTDIR)$(DATADIR)/bash-completion/completions/blip \
		$(DESTDIR)$(DATADIR)/man/man7/libblip.7
	rm -f $(DESTDIR)$(DATADIR)/man/man3/blip_*.3
	rm -rf $(DESTDIR)$(LIBDIR)/cmake/blip

.PHONY: demo
demo: ## build, then watch a C server talk with Python and C clients
	scripts/demo

.PHONY: test
test: all ## run every test; the last line counts them
	@$(PYTHON) scripts/test $(PARTS)

.PHONY: test-swift
test-swift: packages ## tests of the Swift modules
	@mkdir -p $(RESULTS)
	$(SWIFT) test --xunit-output $(RESULTS)/swift.xml

.PHONY: test-c
test-c: lib ## tests in C against the built library
	@mkdir -p $(RESULTS)
	$(MAKE) -C Tests/C check

.PHONY: test-python
test-python: lib $(VENV)/ready ## tests of the Python binding
	@mkdir -p $(RESULTS)
	cd bindings/python && PYTHONPATH=src LIBBLIP_PATH=$(BUILD)/lib/$(SONAME) \
		$(VENV)/bin/python -m pytest -q --timeout=300 tests --junitxml=$(RESULTS)/python.xml

.PHONY: test-javascript
test-javascript: tool ## tests of the JavaScript client, in Node
	@mkdir -p $(RESULTS)
	node=$$(scripts/find-node $(BUILD)/venv-node) && cd bindings/javascript && BLIP_TOOL=$(BUILD)/bin/blip \
		$$node --test --test-timeout=120000 --test-reporter=spec --test-reporter-destination=stdout \
		--test-reporter=junit --test-reporter-destination=$(RESULTS)/javascript.xml test/*.test.js

.PHONY: test-browser
test-browser: tool $(VENV)/ready ## tests of the listener's pages, in a headless Chromium
	@mkdir -p $(RESULTS)
	@scripts/ensure-packages browser
	$(VENV)/bin/python -m pytest -q --timeout=300 Tests/Browser --junitxml=$(RESULTS)/browser.xml

.PHONY: test-tool
test-tool: tool $(VENV)/ready ## tests of the blip tool
	@mkdir -p $(RESULTS)
	$(VENV)/bin/python -m pytest -q --timeout=300 Tests/Tool --junitxml=$(RESULTS)/tool.xml

.PHONY: test-interop
test-interop: tool test-packages $(VENV)/ready $(BUILD)/venv-pythonblip/ready ## tests against other implementations
	@mkdir -p $(RESULTS)
	PYTHONBLIP=$(BUILD)/venv-pythonblip/bin/python \
		$(VENV)/bin/python -m pytest -q --timeout=300 Tests/Interop --junitxml=$(RESULTS)/interop.xml

.PHONY: test-packages
test-packages:
	@scripts/ensure-packages test

.PHONY: test-conformance
test-conformance: tool ## the conformance suites, the WebSocket one shortened
	Tests/Conformance/run websocket --quick
	Tests/Conformance/run blip --quiet

.PHONY: test-fuzz
test-fuzz: packages ## every seed and earlier finding of the fuzzers, once
	Tests/Fuzz/run replay

.PHONY: test-chaos
test-chaos: lib ## a network and a system that fail, for half a minute
	Tests/Chaos/run quick

.PHONY: chaos
chaos: lib ## ten thousand connections on networks and systems that fail: half an hour
	Tests/Chaos/run full

.PHONY: hostile
hostile: tool ## hostile peers: what each costs the server and another client
	Tests/Chaos/run hostile

.PHONY: soak
soak: lib ## everything at once for SECONDS (1800)
	SECONDS_EACH=$(or $(SECONDS),1800) Tests/Chaos/run soak

.PHONY: memcheck
memcheck: lib ## C tests under Valgrind: three minutes
	$(MAKE) -C Tests/C memcheck

.PHONY: fuzz
fuzz: packages ## each fuzzer for twenty seconds
	Tests/Fuzz/run quick

.PHONY: simulation
simulation: packages ## ten thousand runs on a simulated network, and a fault at each byte of a conversation
	SIMULATION_RUNS=$${SIMULATION_RUNS:-10000} SIMULATION_STRIDE=1 $(SWIFT) test --filter Simulation

.PHONY: conformance
conformance: tool ## BLIP and WebSocket conformance, both roles: our own suite and Autobahn's
	Tests/Conformance/run blip
	Tests/Conformance/run websocket

.PHONY: test-sanitize
test-sanitize: packages ## Swift and C tests under the thread and the address sanitizer
	scripts/test-sanitize thread
	scripts/test-sanitize address
	scripts/test-c-sanitize thread
	scripts/test-c-sanitize address

.PHONY: bench
bench: lib ## measure this machine beside the speed of light and raw TCP: six minutes, build/bench/results.md
	$(MAKE) -C Tests/Benchmarks bench

.PHONY: gate
gate: lib ## compare instructions and allocations per request with what was accepted
	$(MAKE) -C Tests/Benchmarks gate

.PHONY: format
format: ## format the Swift sources in place
	$(SWIFT) format -i -r Sources Tests Package.swift

.PHONY: lint
lint: ## check format, layers, forbidden constructs and scripts
	$(SWIFT) format lint --strict -r Sources Tests Package.swift
	$(PYTHON) scripts/check-sources
	$(PYTHON) scripts/check-features
	scripts/check-shell

.PHONY: clean
clean: ## remove everything that was built
	rm -rf .build build bindings/python/build bindings/python/*.egg-info bindings/python/src/*.egg-info
	find bindings examples Tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

include packaging/targets.mk

$(VENV)/ready: Tests/requirements.txt
	scripts/make-venv $(VENV) -r Tests/requirements.txt
	@touch $@

# It declares many dependencies that its client does without.
$(BUILD)/venv-pythonblip/ready: Tests/Interop/requirements-pythonblip.txt
	scripts/make-venv $(BUILD)/venv-pythonblip --no-deps -r Tests/Interop/requirements-pythonblip.txt
	@touch $@
