# Everything that a developer or CI runs. `make` alone lists the targets.

RUNTIME ?= containerd
RUNTIME_ENDPOINT ?=
V ?= 2
PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest
# For tests that mostly wait; files stay together, for what their tests share. Each process has a containerd, a kubelet
# and a cluster of its own.
PARALLEL = --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder
PROCESSES := 3
SCRIPTS := hack/build_images hack/cluster hack/containerd hack/run hack/side_by_side hack/update-api-fields hack/update-divergences hack/update-protos hack/prose_sample hack/verify_clocks hack/verify_docs hack/verify_excepts hack/verify_go_map hack/verify_prose hack/verify_structure hack/watch_pods.py

# Tests start many processes, each of which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup run cluster test unit integration e2e-node e2e verify docs bench testing-wheel clean

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make run and make cluster take RUNTIME=hollow (no root, no container runs), RUNTIME_ENDPOINT=unix://..."
	@echo "  (a containerd of yours, used as it is) and V=4 (how much the kubelet logs)."

setup: ## install what is missing: .venv, and as root on Debian containerd and what it needs
	@hack/setup

run: ## run the example pods and print how they fare, until Ctrl-C
	@command -v python3 >/dev/null || hack/setup python
	@python3 hack/run --runtime '$(RUNTIME)' --check
	@hack/setup $(if $(filter hollow,$(RUNTIME)),python,all)
	@exec $(PYTHON) hack/run --runtime '$(RUNTIME)' --runtime-endpoint '$(RUNTIME_ENDPOINT)' --v '$(V)'

cluster: ## run a cluster of one node with an API server for kubectl, until Ctrl-C
	@command -v python3 >/dev/null || hack/setup python
	@python3 hack/cluster --runtime '$(RUNTIME)' --check
	@hack/setup $(if $(filter hollow,$(RUNTIME)),python,all)
	@hack/setup kubectl
	@exec $(PYTHON) hack/cluster --runtime '$(RUNTIME)' --runtime-endpoint '$(RUNTIME_ENDPOINT)' --v '$(V)'

test: unit integration e2e-node e2e ## run all tests, those on a real containerd included

unit: ## test modules by themselves
	@hack/setup python
	@hack/setup browser
	@hack/setup dbus
	@hack/setup kubectl
	$(PYTEST) $(PARALLEL) test kubelet pkg --ignore test/integration --ignore test/e2e_node --ignore test/e2e \
	  --ignore test/readme --ignore test/study --ignore test/benchmark

# On the hollow runtime hardly anything is done but waiting.
integration: PROCESSES := 6
integration: ## test the kubelet on the hollow runtime, and the lessons of docs/study
	@hack/setup python
	@hack/setup faketime
	@hack/setup prometheus
	$(PYTEST) $(PARALLEL) test/integration test/study

e2e-node: ## test the kubelet as a process on a private containerd; takes root
	@hack/setup
	@hack/setup registry
	@hack/setup browser
	$(PYTEST) $(PARALLEL) test/e2e_node
	$(PYTEST) -m alone test/e2e_node

# Their pods mostly sleep, and the tests wait for what the kubelet does from time to time.
e2e: PROCESSES := 5
e2e: ## test a node through its API server: that of KUBECONFIG, or one made here, which takes root
	@hack/setup $(if $(KUBECONFIG),python,all)
	@hack/setup kubectl
	@hack/setup prometheus
	$(if $(KUBECONFIG),,@hack/setup registry)
	$(PYTEST) $(if $(KUBECONFIG),test/e2e,$(PARALLEL) test/readme test/e2e)

verify: ## check style, types, the map from the Go sources, and the documents; changes nothing
	@hack/setup python
	$(PYTHON) -m ruff check . $(SCRIPTS)
	$(PYTHON) -m ruff format --check . $(SCRIPTS)
	$(PYTHON) -m mypy kubelet pkg cmd
	$(PYTHON) -m mypy --scripts-are-modules test/framework test/csi_driver test/e2e test/e2e_node test/hack test/readme test/site test/study hack/sidebyside $(SCRIPTS)
	$(PYTHON) hack/update-api-types --check
	$(PYTHON) hack/update-api-fields --check
	$(PYTHON) hack/update-protos --check
	$(PYTHON) hack/verify_go_map
	$(PYTHON) hack/verify_docs
	$(PYTHON) hack/verify_clocks
	$(PYTHON) hack/verify_excepts
	$(PYTHON) hack/verify_prose
	PYTHONPATH=hack .venv/bin/lint-imports --no-logo --no-cache pyproject.toml
	$(PYTHON) hack/verify_structure

docs: ## build the documents as a site, in .build/docs
	@hack/setup python
	$(PYTHON) hack/side_by_side --output .build/docs

bench: ## measure, and print a table and JSON
	@hack/setup python
	$(PYTHON) test/benchmark/run

testing-wheel: ## build the wheel of kubelet-testing, for tests of other projects, in dist; always the same from one commit
	@hack/setup python
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(PYTHON) -m pip --disable-pip-version-check wheel --quiet --no-deps \
	  --no-build-isolation --wheel-dir dist hack/dist-testing

clean: ## end what `make run` and `make cluster` started and remove all that they made, in the checkout and outside
	@if [ -e .run/endpoint ]; then $(PYTHON) hack/run --remove-pods; fi
	@python3 hack/containerd clean
	@rm -rf .run .build dist hack/dist-testing/build
