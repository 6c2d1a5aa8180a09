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
	$(VENV)/bin/python -m pytest -q Tests/ABI --junitxml=$(RESULTS)/abi.xml
