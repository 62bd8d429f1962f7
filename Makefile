# One target for each step. `make check` is everything that .ci/run does. Tools are built into .bin at these versions.
BUF           := v1.75.0
GOLANGCI_LINT := v2.15.0
GRPCURL       := v1.9.4

GO       ?= go
BIN      := $(CURDIR)/.bin
SOURCES  := cmd internal proto
# Extra flags for the benchmarks, for example BENCH='Publish' BENCHFLAGS='-count 10'.
BENCH      ?= .
BENCHFLAGS ?=
# How long each fuzz target runs.
FUZZTIME ?= 30s
# Rows and flags for bench-peers.
ROWS      ?=
PEERFLAGS ?=

# Tests find the tools by PATH; where a tool is missing, the tests that need it are skipped.
export PATH := $(BIN):$(PATH)

.PHONY: build run test race generate check-generated fmt check-fmt vet lint tidy check-tidy bench bench-once bench-peers vet-peers cover fuzz tools check clean

build: ## the program, as .bin/tinybroker
	$(GO) build -trimpath -o $(BIN)/tinybroker ./cmd/tinybroker

run: ## a broker with default settings
	$(GO) run ./cmd/tinybroker serve

test:
	$(GO) test ./...

race: $(BIN)/grpcurl-$(GRPCURL) ## the tests as CI runs them
	$(GO) test -race -shuffle=on ./...

generate: $(BIN)/buf-$(BUF) ## Go code from the contract, docs/cli.md from the commands
	cd proto && buf generate
	$(GO) run ./cmd/tinybroker docs

# Generates into another folder and compares, so that it works on a tree with changes and leaves it alone.
check-generated: $(BIN)/buf-$(BUF)
	cd proto && buf lint
	rm -rf $(BIN)/generated
	cd proto && buf generate -o $(BIN)/generated
	diff -ru --exclude='*.proto' --exclude='buf*.yaml' $(BIN)/generated proto

fmt:
	gofmt -w $(SOURCES)

check-fmt:
	@files=$$(gofmt -l $(SOURCES)); if [ -n "$$files" ]; then echo "not formatted, run make fmt:"; echo "$$files"; exit 1; fi

vet:
	$(GO) vet ./...

lint: $(BIN)/golangci-lint-$(GOLANGCI_LINT)
	golangci-lint run

tidy:
	$(GO) mod tidy

check-tidy:
	$(GO) mod tidy -diff

bench: ## figures to compare with benchstat
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem $(BENCHFLAGS) ./...

bench-once: ## every benchmark once, to know that it still runs
	$(GO) test -short -run '^$$' -bench . -benchtime 1x ./...

# ROWS=1x1,group chooses, PEERFLAGS='-quick -runs 1' hurries. Nothing else should run meanwhile.
bench-peers: ## tinybroker beside NATS, JetStream and gRPC, which takes ten minutes
	cd internal/bench/peers && $(GO) run . $(if $(ROWS),-rows '$(ROWS)') $(PEERFLAGS)

# A module of its own, which ./... does not reach.
vet-peers:
	cd internal/bench/peers && $(GO) vet ./...

cover: ## coverage of all packages by all tests
	$(GO) test -coverpkg=./cmd/...,./internal/... -coverprofile=$(BIN)/cover.out ./...
	$(GO) tool cover -func=$(BIN)/cover.out | tail -n 1

fuzz: ## every fuzz target for FUZZTIME
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; \
	done

tools: $(BIN)/buf-$(BUF) $(BIN)/golangci-lint-$(GOLANGCI_LINT) $(BIN)/grpcurl-$(GRPCURL)

check: check-generated check-fmt vet vet-peers lint check-tidy build race bench-once

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
