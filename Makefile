# Everything runs in .venv, which is created from pinned versions and rebuilt when they change. The demo has a small
# environment of its own, with the packages that `pip install mooring` installs.
# A machine needs python3 (3.11 or newer) with pip, make and git; `check` and `test-reference` also node and npm.

# Each worker and each server that a test starts would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO := .venv-demo
UV := $(shell command -v uv)
JOBS ?= 6
SECONDS ?= 600
PYTHONS ?= 3.12 3.13
MUTANTS ?= 200
ROUNDS ?= 1000000
COUNT ?= 500
SCHEDULES ?= 10000
PAGES := tests/console/browser
SOURCES := modules.test.mjs "../../../src/mooring/console/static/**/*.{js,css,ts,html}"

.PHONY: chromium help demo test test-pythons test-uvloop test-wine check house format bench soak mutation nightly test-lowest \
	test-reference test-providers test-adapters lock clean conformance fuzz-policy test-clients bench-gateway \
	soak-gateway test-asgi test-scripts bench-scripts test-remote-login test-apps test-browser soak-gateway-team conformance-short \
	test-cluster soak-cluster bench-tools bench-cluster simulation \
	docs docs-serve test-docs test-migrations test-frameworks test-walkthroughs release-check \
	test-console check-console screenshots test-deploy

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' $(MAKEFILE_LIST) | expand -t 24

demo: $(DEMO)/.ready  ## Run the demo on bundled servers: a few seconds, no network
	@$(DEMO)/bin/python -m mooring demo

# pytest compiles each test module with its assertions. Without this, every worker would do it in a new clone.
.venv/.compiled: $(READY)
	@$(BIN)/python -m pytest --collect-only -q > /dev/null
	@touch $@

test: .venv/.compiled  ## Run the tests
	$(BIN)/python -m pytest -n $(JOBS) --inline-snapshot=disable

test-pythons: $(READY)  ## Run the tests on other versions of Python, installed into .peers (PYTHONS="3.12 3.13")
	$(BIN)/python scripts/test_pythons.py $(PYTHONS) -- -n $(JOBS)

test-uvloop: $(READY)  ## Run the tests that talk to servers on uvloop
	MOORING_TEST_LOOP=uvloop $(BIN)/python -m pytest -n $(JOBS) --inline-snapshot=disable \
		tests/interaction tests/faults tests/transport tests/gateway

test-wine: $(READY)  ## A smoke test of the Windows side under Wine; installs Debian's wine and mingw if missing (root)
	@command -v wine > /dev/null && command -v x86_64-w64-mingw32-gcc > /dev/null || { apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends wine wine64 gcc-mingw-w64-x86-64 > /dev/null; }
	$(BIN)/python scripts/test_wine.py

check: $(READY)  ## Lint, types, import contracts, file sizes, figures of the code base
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	for platform in Linux Darwin Windows; do $(BIN)/pyright --pythonplatform $$platform || exit 1; done
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_sizes.py
	$(BIN)/python scripts/house.py --check
	$(MAKE) --no-print-directory check-console

check-console: $(PAGES)/node_modules/.package-lock.json  ## Types and format of the pages of the console (needs node and npm)
	$(PAGES)/node_modules/.bin/tsc --project $(PAGES)
	cd $(PAGES) && node_modules/.bin/prettier --config .prettierrc.json --log-level warn --check $(SOURCES)

house: $(READY)  ## Print figures of the code base beside their goals
	$(BIN)/python scripts/house.py --details

format: $(READY) $(PAGES)/node_modules/.package-lock.json  ## Fix and format the code, and write the generated parts of the documentation
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python scripts/write_cli_help.py
	$(BIN)/python scripts/write_rooms.py
	$(BIN)/python scripts/write_reference.py
	$(BIN)/python scripts/write_api.py
	$(BIN)/python scripts/write_adapters.py
	$(BIN)/python scripts/record_session.py
	cd $(PAGES) && node_modules/.bin/prettier --config .prettierrc.json --log-level warn --write $(SOURCES)

docs: .venv-docs/.ready  ## Build the documentation site into site/ and check it (strict; no network once installed)
	.venv-docs/bin/python scripts/build_docs.py

docs-serve: docs  ## Show the documentation site on http://127.0.0.1:8000/
	$(PYTHON) -m http.server 8000 --bind 127.0.0.1 --directory site

test-docs: docs $(READY) | chromium  ## Look at the site in Chromium: search, links, colours, no request to another host
	$(BIN)/python -m pytest -m reference -p no:randomly tests/docs/test_site.py

test-migrations: $(READY)  ## Run the programs of docs/migrate, before and after, with the other packages in .peers
	$(BIN)/python scripts/test_peers.py migrations $(NAMES)

test-frameworks: $(READY)  ## Run examples/gateway with CrewAI, AG2 and Semantic Kernel in .peers
	$(BIN)/python scripts/test_peers.py frameworks $(NAMES)

test-walkthroughs: $(READY)  ## Build an agent with eight servers from the docs alone, in three frameworks
	$(BIN)/python -m pytest -m reference -p no:randomly tests/walkthroughs

release-check: $(READY)  ## Build the distributions, check them, install the wheel in a clean environment, run the demo
	$(BIN)/python scripts/release_check.py

bench: $(READY)  ## Measure against the bare SDK
	$(BIN)/python bench/run.py

soak: $(READY)  ## Twenty servers with random faults, 64 callers (SECONDS=600)
	$(BIN)/python -m tests.soak --seconds $(SECONDS)

mutation: $(READY)  ## Change single operators in the core and the lock, and run the tests (MUTANTS=200 SECONDS=600)
	$(BIN)/python scripts/mutation.py --mutants $(MUTANTS) --seconds $(SECONDS)

fuzz-policy: $(READY)  ## A million evaluations of random rules and arguments (ROUNDS=1000000)
	MOORING_FUZZ_RULES=$(ROUNDS) $(BIN)/python -m pytest -q -s -p no:randomly tests/core/test_rules.py -k crashes

nightly: $(READY)  ## The long tests: fuzzing, soak, mutation, the benchmark and its gate
	FUZZ=100000 $(BIN)/python -m pytest -n $(JOBS) tests/faults/test_fuzz.py --timeout 3600
	for round in $$(seq 10); do \
		$(BIN)/python -m pytest -n $(JOBS) -m hypothesis --hypothesis-profile explore || exit 1; done
	$(MAKE) soak
	$(MAKE) soak-gateway
	$(MAKE) soak-gateway-team
	$(MAKE) fuzz-policy
	$(MAKE) mutation SECONDS=3600
	$(BIN)/python bench/run.py --results .bench
	$(BIN)/python bench/gate.py --results .bench/latest.json

test-lowest: $(READY)  ## Run the tests on the lowest versions that we say we support, installed into .peers
	$(PYTHON) -m venv .peers/lowest
	.peers/lowest/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt uv
	.peers/lowest/bin/uv pip compile --quiet --resolution lowest-direct --python .peers/lowest/bin/python \
		--extra sdk pyproject.toml -o .peers/lowest.txt
	.peers/lowest/bin/uv pip install --quiet --python .peers/lowest/bin/python -r .peers/lowest.txt
	.peers/lowest/bin/uv pip install --quiet --python .peers/lowest/bin/python --no-deps -e .
	.peers/lowest/bin/python -m pytest -n $(JOBS) --inline-snapshot=disable

test-providers: $(READY)  ## Check compiled schemas with the providers' own SDKs, installed into .peers
	$(PYTHON) -m venv .peers/providers
	.peers/providers/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt \
		openai anthropic google-genai
	PYTHONPATH=src .peers/providers/bin/python -m pytest -n $(JOBS) tests/core/test_schema_sdks.py \
		tests/core/test_schema_properties.py

conformance: $(READY)  ## The official suite: servers through the gateway, and our client (needs npm)
	$(BIN)/python -m tests.conformance.run all

conformance-short: $(READY)  ## The official suite over one upstream transport, newest revision (needs npm)
	$(BIN)/python -m tests.conformance.run all --upstream http --spec 2026-07-28

test-clients: $(READY)  ## Real clients against the gateway, installed from npm and PyPI into .peers
	$(BIN)/python -m pytest -m reference -p no:randomly tests/clients

test-apps: $(READY)  ## An official MCP App through the gateway in a browser (needs Debian's chromium and chromium-driver, npm)
	$(BIN)/python -m pytest -m reference -p no:randomly tests/apps

test-remote-login: $(READY)  ## Logins through the gateway in Chromium (needs chromium and chromedriver)
	$(BIN)/python -m pytest -m reference -p no:randomly tests/gateway/test_chromium_login.py

test-console: $(READY) $(PAGES)/node_modules/.package-lock.json  ## The console in Chromium: a whole path, attacks, axe, 400 pixels, speed
	$(BIN)/python -m pytest -m reference -p no:randomly tests/console/browser

screenshots: $(READY) $(PAGES)/node_modules/.package-lock.json | chromium  ## Write the pictures of docs/console
	MOORING_SCREENSHOTS=1 $(BIN)/python -m pytest -q -m reference -p no:randomly -k "every_page or first_run or gateway or cluster" \
		tests/console/browser/test_pages.py tests/console/browser/test_gateway.py tests/console/browser/test_data.py

test-browser: test-apps test-remote-login test-console  ## The tests in Chromium; installs Debian's chromium if it is missing (root)

chromium:
	@command -v chromium > /dev/null && command -v chromedriver > /dev/null || \
		{ apt-get update -qq && apt-get install -y -qq chromium chromium-driver; }

test-apps test-remote-login test-console: | chromium

test-deploy: $(READY)  ## The examples of deploy/ with nginx and promtool; installs Debian's nginx-light and prometheus if missing (root)
	@command -v nginx > /dev/null && command -v promtool > /dev/null || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx-light prometheus > /dev/null; }
	$(BIN)/python -m pytest -q -p no:randomly tests/deploy tests/gateway/test_proxies.py
	$(BIN)/python -m pytest -q -p no:randomly -m cluster tests/cluster/test_balanced.py

bench-gateway: $(READY)  ## Measure the gateway beside mcp-proxy and fastmcp
	$(BIN)/python -m bench.gateways

soak-gateway: $(READY)  ## 10,000 idle connections; a thousand sessions, kills and reloads (SECONDS=600)
	$(BIN)/python -m tests.soak.crowd
	$(BIN)/python -m tests.soak.gateway --seconds $(SECONDS)

soak-gateway-team: $(READY)  ## 50 clients, 4 principals, 3 profiles; tokens rotate, servers are killed (SECONDS=300)
	$(BIN)/python -m tests.soak.team --seconds $(if $(filter 600,$(SECONDS)),300,$(SECONDS))

test-cluster: $(READY)  ## Real nodes and workers: forwarding, failures, a minute of the soak (SECONDS=60)
	$(BIN)/python -m pytest -n 2 -p no:randomly --timeout 180 -m 'cluster or not cluster' tests/cluster
	$(BIN)/python -m tests.soak.cluster --seconds $(if $(filter 600,$(SECONDS)),60,$(SECONDS)) --seed 1

soak-cluster: $(READY)  ## Nodes killed and stopped on a seeded schedule, with a ledger at the server (SECONDS=600)
	$(BIN)/python -m tests.soak.cluster --seconds $(SECONDS)

bench-tools:  ## Install wrk, the load generator of bench-cluster, with apt-get (Debian, as root)
	apt-get install --yes --no-install-recommends wrk

bench-cluster: $(READY)  ## Cost of a hop, of nodes and of workers; writes bench/results/cluster.md (PART=hop)
	$(BIN)/python -m bench.cluster $(if $(PART),--part $(PART))

test-reference: $(READY)  ## Talk to the real reference servers, installed from npm and PyPI into .peers
	$(BIN)/python -m pytest -m reference -p no:randomly tests/reference

test-adapters: $(READY)  ## Run the adapters with the newest agent frameworks, installed into .peers (SET=together)
	$(BIN)/python scripts/test_adapters.py $(SET)

test-asgi: $(READY)  ## Run the gateway in FastAPI and Litestar, and under uvicorn, hypercorn and granian, installed into .peers
	$(BIN)/python scripts/test_adapters.py asgi

test-scripts: $(READY)  ## Hostile scripts, killed workers, 500 ends of a process, cost (COUNT=500)
	$(BIN)/python -m tests.scripts.proofs --count $(COUNT)

bench-scripts: $(READY)  ## Tokens and time of tasks with and without scripts; writes the table of docs/scripts.md
	$(BIN)/python -m bench.scripts

simulation: $(READY)  ## Placement in simulated clusters of 100 nodes and a million sessions (SCHEDULES=10000)
	$(BIN)/python -m tests.simulation --schedules $(SCHEDULES)

lock: $(READY)  ## Pin the newest allowed versions of everything
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --group dev pyproject.toml \
		--custom-compile-command "make lock" -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-annotate --group docs \
		--custom-compile-command "make lock" -o requirements/docs.txt

clean:  ## Remove environments, caches and builds
	rm -rf .venv .venv-demo .venv-docs .peers site .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist \
		$(PAGES)/node_modules

$(PAGES)/node_modules/.package-lock.json: $(PAGES)/package-lock.json
	cd $(PAGES) && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

# The tools are installed again when their pins change; the package alone when only its own metadata changes.
.venv/.tools: requirements/dev.txt
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -r requirements/dev.txt
	@touch $@

$(READY): .venv/.tools pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# The site has its own tools, so that the tests do not wait for them.
.venv-docs/.ready: requirements/docs.txt
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/docs.txt
	@touch $@

# Without a build and without pip it is ready in seconds: the packages, and a path to src.
$(DEMO)/.ready: pyproject.toml requirements/dev.txt
	@$(PYTHON) -m venv --clear --without-pip $(DEMO)
	@$(PYTHON) scripts/runtime.py > $(DEMO)/requirements.txt
ifneq ($(UV),)
	@$(UV) pip install --quiet --python $(DEMO)/bin/python -c requirements/dev.txt -r $(DEMO)/requirements.txt
else
	@$(PYTHON) -m pip --python $(DEMO)/bin/python install --quiet --quiet --disable-pip-version-check --no-compile \
		-c requirements/dev.txt -r $(DEMO)/requirements.txt
endif
	@echo "$(CURDIR)/src" > $$($(DEMO)/bin/python -c "import site; print(site.getsitepackages()[0])")/mooring.pth
	@touch $@
