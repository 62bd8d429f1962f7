# One target for each step. `make check` is everything that .ci/run does. Tools are built into .bin at these versions.
BUF           := v1.75.0
GOLANGCI_LINT := v2.15.0
GRPCURL       := v1.9.4
GORELEASER    := v2.15.1
GOVULNCHECK   := v1.9.0

GO       ?= go
BIN      := $(CURDIR)/.bin
SOURCES  := cmd internal packaging proto
# Extra flags for the benchmarks, for example BENCH='Publish' BENCHFLAGS='-count 10'.
BENCH      ?= .
BENCHFLAGS ?=
# How long each fuzz target runs, and the soak.
FUZZTIME ?= 30s
SOAK     ?= 1m
# Rows and flags for bench-peers.
ROWS      ?=
PEERFLAGS ?=

# goreleaser wants the checkout to have a remote, or does not look at the commit either. It connects to none.
REMOTE := GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://codeberg.org/tinybroker/tinybroker

# Tests find the tools by PATH; where a tool is missing, the tests that need it are skipped.
export PATH := $(BIN):$(PATH)

.PHONY: build run test race memory generate check-generated check-breaking contract-released fmt check-fmt vet vet-platforms lint tidy check-tidy \
	licenses check-licenses vulncheck bench bench-once bench-peers bench-start vet-peers cover fuzz release-files release-snapshot check-release \
	tools check clean

build: ## the program, as .bin/tinybroker
	$(GO) build -trimpath -o $(BIN)/tinybroker ./cmd/tinybroker

run: ## a broker with default settings
	$(GO) run ./cmd/tinybroker serve

test:
	$(GO) test ./...

race: $(BIN)/grpcurl-$(GRPCURL) ## the tests as CI runs them
	$(GO) test -race -shuffle=on ./...

generate: $(BIN)/buf-$(BUF) ## Go code and docs/protocol.md from the contract; docs/cli.md, docs/man and docs/config.yaml from the commands
	cd proto && buf generate
	$(GO) run ./cmd/tinybroker docs

# Generates into another folder and compares, so that it works on a tree with changes and leaves it alone.
check-generated: $(BIN)/buf-$(BUF)
	cd proto && buf lint
	rm -rf $(BIN)/generated $(BIN)/docs
	cd proto && buf generate -o $(BIN)/generated
	diff -u $(BIN)/docs/protocol.md docs/protocol.md
	diff -ru --exclude='*.proto' --exclude='buf*.yaml' --exclude=released.binpb $(BIN)/generated proto

# The contract may grow, and nothing in it may change: clients that were built with the last release must go on to work.
check-breaking: $(BIN)/buf-$(BUF)
	cd proto && buf breaking --against released.binpb

contract-released: $(BIN)/buf-$(BUF) ## after a release: what it had is what later ones are compared with
	cd proto && buf build --exclude-source-info -o released.binpb

fmt:
	gofmt -w $(SOURCES)

check-fmt:
	@files=$$(gofmt -l $(SOURCES)); if [ -n "$$files" ]; then echo "not formatted, run make fmt:"; echo "$$files"; exit 1; fi

vet:
	$(GO) vet ./...

vet-platforms: ## everything, tests too, compiles and vets for the systems that this one is not
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	GOOS=windows GOARCH=amd64 $(GO) vet ./...

lint: $(BIN)/golangci-lint-$(GOLANGCI_LINT)
	golangci-lint run

tidy:
	$(GO) mod tidy
	cd internal/bench/peers && $(GO) mod tidy

check-tidy:
	$(GO) mod tidy -diff
	cd internal/bench/peers && $(GO) mod tidy -diff

licenses: ## which modules are in the program, and their licences: docs/third-party-licenses.txt
	$(GO) run ./internal/licenses

check-licenses:
	$(GO) run ./internal/licenses -check

# It asks a database on the internet, so it is no part of check: before a release, and whenever somebody wants to know.
vulncheck: $(BIN)/govulncheck-$(GOVULNCHECK) ## known vulnerabilities in what the program calls
	govulncheck ./...

bench: ## figures to compare with benchstat
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(BENCHFLAGS) ./...

bench-once: ## every benchmark once, to know that it still runs
	$(GO) test -short -run '^$$' -bench . -benchtime 1x ./...

# ROWS=1x1,group chooses, PEERFLAGS='-quick -runs 1' hurries. Nothing else should run meanwhile.
bench-peers: ## tinybroker beside NATS, JetStream and gRPC, which takes half an hour
	cd internal/bench/peers && $(GO) run . $(if $(ROWS),-rows '$(ROWS)') $(PEERFLAGS)

bench-start: ## size, time to listening and idle memory beside nats-server
	cd internal/bench/peers && $(GO) run . -rows start -runs 1 $(PEERFLAGS)

# A module of its own, which ./... does not reach.
vet-peers:
	cd internal/bench/peers && $(GO) vet ./...

cover: ## coverage of all packages by all tests
	$(GO) test -coverpkg=./cmd/...,./internal/... -coverprofile=$(BIN)/cover.out ./...
	$(GO) tool cover -func=$(BIN)/cover.out | tail -n 1

fuzz: ## every fuzz target for FUZZTIME
	GO='$(GO)' .ci/fuzz $(FUZZTIME)

# What archives and packages hold beside the program, the same for all platforms.
release-files:
	rm -rf $(BIN)/release
	mkdir -p $(BIN)/release/completions $(BIN)/release/man
	$(GO) run ./cmd/tinybroker completion bash >$(BIN)/release/completions/tinybroker.bash
	$(GO) run ./cmd/tinybroker completion zsh >$(BIN)/release/completions/_tinybroker
	$(GO) run ./cmd/tinybroker completion fish >$(BIN)/release/completions/tinybroker.fish
	$(GO) run ./cmd/tinybroker completion powershell >$(BIN)/release/completions/tinybroker.ps1
	for page in docs/man/*.1; do gzip -9nc $$page >$(BIN)/release/man/$$(basename $$page).gz || exit 1; done
	gzip -9nc CHANGELOG.md >$(BIN)/release/CHANGELOG.md.gz
	gzip -9nc docs/third-party-licenses.txt >$(BIN)/release/third-party-licenses.txt.gz

release-snapshot: $(BIN)/goreleaser-$(GORELEASER) ## all archives and packages in dist, nothing published
	$(REMOTE) goreleaser release --snapshot --clean --skip=publish,sign,sbom,docker

check-release: $(BIN)/goreleaser-$(GORELEASER) ## builds a release and tests what is in it; the tests of packages want root
	$(REMOTE) goreleaser check
	$(MAKE) release-snapshot
	TINYBROKER_DIST=$(CURDIR)/dist $(GO) test -count=1 ./packaging

memory: ## what processes take under load, without the race detector, which takes more
	$(GO) test -count=1 -run 'Memory|UnderLoad|Bombs|Giver|OutOfDescriptors' ./cmd/tinybroker

# SOAK=1h for an hour; TINYBROKER_SOAK_SEED repeats a run. It ends with the round in which the time is over.
soak: ## publishers, subscribers and members, and everything that can go wrong with them
	TINYBROKER_SOAK=$(SOAK) $(GO) test -race -count 1 -run '^TestSoak$$' -v -timeout 0 ./cmd/tinybroker

tools: $(BIN)/buf-$(BUF) $(BIN)/golangci-lint-$(GOLANGCI_LINT) $(BIN)/grpcurl-$(GRPCURL) $(BIN)/goreleaser-$(GORELEASER)

check: tools check-generated check-breaking check-fmt vet vet-platforms vet-peers lint check-tidy check-licenses build race memory fuzz soak bench-once check-release

check: FUZZTIME := 5s

clean:
	rm -rf $(BIN) dist

# An empty file marks which version of a tool is in .bin.
$(BIN)/buf-$(BUF):
	GOBIN=$(BIN) $(GO) install github.com/bufbuild/buf/cmd/buf@$(BUF)
	@rm -f $(BIN)/buf-v* && touch $@

$(BIN)/golangci-lint-$(GOLANGCI_LINT):
	GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	@rm -f $(BIN)/golangci-lint-v* && touch $@

$(BIN)/grpcurl-$(GRPCURL):
	GOBIN=$(BIN) $(GO) install github.com/fullstorydev/grpcurl/cmd/grpcurl@$(GRPCURL)
	@rm -f $(BIN)/grpcurl-v* && touch $@

$(BIN)/goreleaser-$(GORELEASER):
	GOBIN=$(BIN) $(GO) install github.com/goreleaser/goreleaser/v2@$(GORELEASER)
	@rm -f $(BIN)/goreleaser-v* && touch $@

$(BIN)/govulncheck-$(GOVULNCHECK):
	GOBIN=$(BIN) $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	@rm -f $(BIN)/govulncheck-v* && touch $@
