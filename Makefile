# Millrace. `make up` and `make test` are the two commands to know; `make check` is what people and CI both run.
export GOTOOLCHAIN := auto

GO       ?= go
ARGS     ?=
# The whole suite on two cores, browser and crash tests included. A package past it is stuck.
TEST_TIMEOUT ?= 15m
SLOW_TIMEOUT ?= 120m
GOBUILD  := CGO_ENABLED=0 $(GO) build -trimpath

.PHONY: up up-real build generate fmt check test test-slow screenshots clean

up: build ## Build, then run everything on this machine (ARGS="--fresh --listen 127.0.0.1:9000")
	exec bin/millrace up $(ARGS)

up-real: build ## The same with a real model: gemma-3-270m on llama.cpp
	exec bin/millrace up --engine llamacpp $(ARGS)

build: ## Static binaries in bin/
	@mkdir -p bin
	$(GOBUILD) -o bin/millrace ./cmd/millrace
	$(GOBUILD) -o bin/millrace-agent ./cmd/millrace-agent

generate: ## db/q from db/query, *_templ.go from *.templ
	tools/generate

fmt: ## gofmt and templ fmt
	gofmt -w $$(git ls-files --cached --others --exclude-standard '*.go')
	"$$(tools/tool templ)" fmt -log-level warn -prettier-command cat web

check: ## Generated code fresh, formatted, vetted, linted
	tools/check

test: build ## Every test that is not heavy
	tools/test -timeout $(TEST_TIMEOUT) ./...

test-slow: build ## The heavy ones too: real engines, long crash and soak runs
	MILLRACE_SLOW=1 tools/test -timeout $(SLOW_TIMEOUT) -count=1 ./...
	MILLRACE_PG_MAJOR=18 tools/test -timeout $(TEST_TIMEOUT) -count=1 ./db/... ./tenants/... ./billing/...

screenshots: build ## The README's pictures, taken from the real console
	tools/screenshots

clean:
	rm -rf bin .cache
