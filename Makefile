# Everything that a target needs it installs or builds itself.

SHELL := /bin/bash
export GOTOOLCHAIN := auto
export PATH := $(PATH):/usr/sbin:/sbin

BIN := bin
LAB := .lab
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
LDFLAGS := -s -w

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the commands into bin/
	@echo "building the commands (the first time also downloads modules) ..."
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

.PHONY: demo
demo: root packages build ## start a two-node lab with two pods that stays up
	CGO_ENABLED=0 go build -o $(BIN)/ ./test/demo
	@$(BIN)/demo up "$(CURDIR)/$(LAB)" "$(CURDIR)/$(BIN)"

.PHONY: demo-down
demo-down: ## end what "make demo" started
	@test ! -x $(BIN)/demo || $(BIN)/demo down "$(CURDIR)/$(LAB)" "$(CURDIR)/$(BIN)"

.PHONY: test
test: root packages ovn25 qemu tools lint ## run all tests; needs root
	@echo "running all tests, those with real OVN and DHCP included ..."
	go test -race -tags lab -timeout 30m ./...
	@$(MAKE) --no-print-directory size

.PHONY: test-unit
test-unit: ## run the tests that need no root and no OVN
	go test ./...

.PHONY: lint
lint: ## check the format, go vet, staticcheck, generated code
	@echo "checking the code ..."
	@unformatted="$$(gofmt -l $$(git ls-files '*.go'))"; test -z "$$unformatted" || { echo "not formatted: $$unformatted"; exit 1; }
	go vet ./... && go vet -tags lab,guest ./...
	go run $(STATICCHECK) -tags lab,guest ./...
	@echo "checking that models/ is what the schemas give ..."
	@go generate ./models && git diff --exit-code --stat models

# The shim is started for every CNI call; 12 MB is its limit.
.PHONY: size
size: build
	@size=$$(stat -c %s $(BIN)/ovn-k8s-cni-overlay); echo "the shim has $$size bytes"; test $$size -lt 12000000

.PHONY: bench bench-leases
bench: root packages tools build bench-leases ## measure, each figure beside a yardstick of the same run (PARTS=shim add controller latency ...)
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/bench/ ./test/bench ./test/bench/hello
	@$(BIN)/bench/bench $(BIN) $(BIN)/bench/hello $(PARTS)

bench-leases: root packages tools build ## measure the DHCP engine beside the CNI dhcp plugin's daemon
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/bench/ ./test/bench/leases
	@$(BIN)/bench/leases $(BIN)

.PHONY: vfio
vfio: root packages qemu ## hand a virtual function of an emulated machine over, and print how long it takes
	go test -tags lab -count 1 -v ./test/vfio

.PHONY: soak
soak: root packages tools ## end the node daemon by kill -9 a hundred times and more (KILLS)
	KILLS=$(or $(KILLS),200) go test -race -tags lab -timeout 60m -count 1 -v -run TestKilledAtAnyMoment ./test/e2e

.PHONY: fuzz
fuzz: ## run each fuzz target for a while (FUZZTIME, default 30s)
	@for p in $$(go list ./...); do for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz'); do \
		echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzzminimizetime 100x -fuzztime $(or $(FUZZTIME),30s) $$p || exit 1; done; done

.PHONY: generate
generate: ## generate models/ from the schemas beside them
	go generate ./models

.PHONY: root
root:
	@test "$$(id -u)" = 0 || { echo "this needs root: network namespaces are made"; exit 1; }

# What the tests run beside the distribution's packages is kept outside of the
# checkout: a newer OVN, an emulator and a kernel, and programs of Kubernetes that are
# built once.
.PHONY: ovn25 qemu tools
ovn25:
	@test/ovn25.sh >/dev/null
qemu:
	@test/qemu.sh >/dev/null
tools:
	@test/tools/build.sh >/dev/null

.PHONY: packages
packages:
	@test/packages.sh

.PHONY: clean
clean: demo-down ## remove what the targets made
	rm -rf $(BIN)
