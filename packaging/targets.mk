# Targets of packages, ABI, documents and releases; included by the Makefile at the top.

.PHONY: deb
deb: deb-packages ## build the Debian packages into build/deb; fetches nothing but missing build tools
	scripts/stage-deb $(BUILD)/deb
	cd $(BUILD)/deb/libblip-* && dpkg-buildpackage --no-sign

.PHONY: deb-packages
deb-packages:
	@scripts/ensure-packages deb

.PHONY: abi
abi: ## compare the binary interface of blip.h with the one in docs/abi
	$(PYTHON) scripts/check-abi

.PHONY: test-abi
test-abi: lib test-packages $(VENV)/ready ## tests of the binary interface
	@mkdir -p $(RESULTS)
	$(VENV)/bin/python -m pytest -q --timeout=300 Tests/ABI --junitxml=$(RESULTS)/abi.xml

# Sphinx with its parts as Debian has them; any Python that has sphinx, myst_parser and furo will do.
DOCS_PYTHON ?= /usr/bin/python3

.PHONY: docs
docs: lib docs-packages ## build guides and references as HTML into build/docs/html
	$(PYTHON) scripts/make-docs $(BUILD)/docs/source
	BLIP_ROOT=$(ROOT) BLIP_VERSION=$(VERSION) LIBBLIP_PATH=$(BUILD)/lib PYTHONDONTWRITEBYTECODE=1 \
		$(DOCS_PYTHON) -m sphinx -q -W --keep-going -E -d $(BUILD)/docs/cache -b html $(BUILD)/docs/source $(BUILD)/docs/html

.PHONY: docs-packages
docs-packages:
	@scripts/ensure-packages docs

.PHONY: deb-check
deb-check: deb-packages ## build the Debian packages twice and compare; lintian, autopkgtest, piuparts
	scripts/check-deb

.PHONY: test-docs
test-docs: all test-packages $(VENV)/ready ## compile or run every code block of the pages
	@mkdir -p $(RESULTS)
	$(VENV)/bin/python -m pytest -q --timeout=300 Tests/Docs --junitxml=$(RESULTS)/docs.xml

VENV_WHEEL := $(BUILD)/venv-wheel

.PHONY: wheel
wheel: lib $(VENV_WHEEL)/ready ## build Python wheels into build/wheels: with the library inside, and without
	scripts/make-wheel $(BUILD)/wheels

.PHONY: test-wheel
test-wheel: wheel ## tests of the wheels in environments of their own, and of the types
	@mkdir -p $(RESULTS)
	$(VENV_WHEEL)/bin/python -m pytest -q -p no:cacheprovider Tests/Distribution --junitxml=$(RESULTS)/wheel.xml

$(VENV_WHEEL)/ready: Tests/Distribution/requirements.txt
	scripts/make-venv $(VENV_WHEEL) -r Tests/Distribution/requirements.txt
	@touch $@

.PHONY: release-check
release-check: ## whether this commit could be released: version, changelog, ABI, programs, documents, packages
	scripts/check-release
