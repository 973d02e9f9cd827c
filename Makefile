# The README's second command. `make` alone says what there is.
.DEFAULT_GOAL := help
.PHONY: help test fmt vet lint build generated unit race arm64 fuzz softroce generate peers bench clean

GO       ?= go
FUZZTIME ?= 100000x
LINT     := build/bin/golangci-lint
# What is timed or starts processes by the dozen is not run under the race
# detector; everything else is.
RACE     := ./mem/... ./reduce/... ./plan/... ./algo/... ./tune/... ./link/... ./shm/... ./span/... ./tcp/... ./verbs ./verbs/rc ./bootstrap/... ./engine/... ./bucket/... ./internal/...

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

test: fmt vet lint build generated unit race arm64 softroce fuzz ## everything that must hold before a change lands
	@echo "make test: all good"

fmt: ## fail on files that gofmt would change
	@files=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$files" ]; then echo "gofmt -w these:"; echo "$$files"; exit 1; fi

vet: ## go vet, for amd64 and arm64, with and without assembly
	$(GO) vet ./...
	$(GO) vet -tags noasm ./...
	$(GO) vet -tags softroce ./...
	GOARCH=arm64 $(GO) vet ./...

$(LINT): tools/go.mod tools/go.sum
	$(GO) build -modfile=tools/go.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

lint: $(LINT) ## golangci-lint, pinned in tools/go.mod
	$(LINT) run ./...
	$(LINT) run --build-tags softroce ./ci/... ./verbs/...

build: ## all packages, with cgo and without
	CGO_ENABLED=1 $(GO) build ./...
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) build -o build/bin/commbench ./cmd/commbench

generated: ## fail if the committed assembly is not what its generator writes
	@ci/generated

unit: ## the tests
	$(GO) test -timeout 20m ./...
	$(GO) test -tags noasm ./reduce/...

race: ## the tests under the race detector, where it applies
	$(GO) test -race -short -timeout 20m $(RACE)

arm64: ## cross-compile; run the kernels under QEMU where it is installed
	GOOS=linux GOARCH=arm64 $(GO) build ./...
	@ci/arm64-kernels

softroce: ## boot two machines with soft-RoCE under QEMU and test in them
	$(GO) test -tags softroce -count=1 -timeout 20m ./ci/softroce

fuzz: ## each fuzz target, FUZZTIME inputs
	@FUZZTIME=$(FUZZTIME) ci/fuzz-all

generate: ## make the generated assembly again
	cd reduce && $(GO) generate ./...

peers: ## build the peers, measure them and commbench in turn, print the table
	$(GO) run ./bench/peers

bench: ## the Go benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

clean: ## remove what was built
	rm -rf build
