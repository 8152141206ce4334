# Every target sets up what it needs in .venv; nothing but Python 3.11, gcc and make has to be there.
VENV := .venv
# Set it to have exactly that one; otherwise the quickest Python of the same version is looked for.
PYTHON ?=
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WIRE := threefs/wire
export PYTHONHASHSEED := 0
# Programs start quickly if their modules are compiled once, also in a shell that keeps Python from writing beside them.
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache
unexport PYTHONDONTWRITEBYTECODE
# As the units of systemd and `threefs` do: numpy would start a thread for each core in each program.
export OPENBLAS_NUM_THREADS := 1

.PHONY: help venv demo fast test coverage check proto proto-check bench bench-smoke bench-meta bench-incast bench-ml bench-grow bench-scale sim sim-many planted chaos machine mix fuzz bit-flips models docs ml-venv mosaic-venv compatibility format clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

demo: $(READY) ## Start a cluster, use it, kill a storage process, check everything (JSON=file writes the figures)
	$(BIN)/threefs demo $(if $(JSON),--json $(JSON))

fast: $(READY) ## Run the unit tests that start no process and are quick, with fewer random examples (less than a minute)
	$(BIN)/python -m pytest tests/unit -n auto --dist loadfile -q -m 'not processes and not slow' --hypothesis-profile=fast

# Tests mostly wait for processes and leases, so a few files run side by side even on two cores.
test: $(READY) ## Run all tests (the rules of the tree: make check), or some one by one (ARGS="tests/unit/threefs -k rocks")
	$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),-n 3 --dist loadfile --no-loadscope-reorder --ignore tests/test_tidy.py)

coverage: $(READY) ## Report which lines the unit and contract tests run: build/coverage/index.html
	COVERAGE_FILE=build/coverage/data $(BIN)/python -m pytest tests/unit tests/contract -n 3 --dist loadfile \
	--cov --cov-report=html:build/coverage --cov-report=term:skip-covered

check: $(READY) ## Lint, format, types, and the rules of the tree
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_tidy.py

format: $(READY) ## Format, and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## Build the site of the documentation below build/site; fails on a link that leads nowhere
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

ml-venv: $(READY) ## Add the libraries to .venv that tests use threefs with (PyTorch, pandas, pyarrow, datasets, ...)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --constraint deploy/ml-constraints.txt \
	'dask[dataframe]' datasets distributed duckdb ml_dtypes pandas pyarrow safetensors tokenizers torch webdataset zarr

# It needs an older numpy than ours, so it has a venv of its own.
mosaic-venv: ## Install Mosaic's StreamingDataset below build/mosaic, for make bench-ml MOSAIC=build/mosaic/bin/python
	$(or $(PYTHON),python3) -m venv build/mosaic
	build/mosaic/bin/python -m pip install --quiet --disable-pip-version-check mosaicml-streaming==0.13.0 torch==2.13.0 torchvision==0.28.0

compatibility: $(READY) ## Show that threefs installs beside PyTorch, pandas, LMCache and vLLM (asks the package registry)
	$(BIN)/python deploy/check_compatibility.py

proto: $(READY) ## Generate threefs/wire from proto/
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=. --pyi_out=. proto/$(WIRE)/*.proto

proto-check: $(READY) ## Fail if threefs/wire is not what proto/ generates
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && \
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out="$$fresh" --pyi_out="$$fresh" proto/$(WIRE)/*.proto && \
	diff -ru --exclude=__init__.py --exclude=__pycache__ $(WIRE) "$$fresh/$(WIRE)" && \
	echo "$(WIRE) matches proto/"

sim: $(READY) ## Replay one simulated run and print it: make sim SEED=7
	$(BIN)/python -m tests.sim --seed $(or $(SEED),1) $(if $(DENSE),--dense)

sim-many: $(READY) ## Simulate N seeds of faults on whole clusters (N=1000 FIRST=1 DENSE=1 JSON=file)
	$(BIN)/python -m tests.sim --many $(or $(N),1000) --first $(or $(FIRST),1) $(if $(DENSE),--dense) $(if $(JSON),--json $(JSON))

planted: $(READY) ## Plant bugs, and see that the simulator catches each (JSON=file)
	$(BIN)/python -m tests.sim.planted_bug_hunt $(if $(JSON),--json $(JSON))

chaos: $(READY) ## Faults on real processes under load, then audits (MINUTES=5 SEED=1 WORLD=both JSON=file)
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),5) --seed $(or $(SEED),1) --world $(or $(WORLD),both) $(if $(JSON),--json $(JSON))

machine: $(READY) ## Random calls through client and mount against a local directory, with kills (EXAMPLES=1000 STEPS=200)
	THREEFS_MACHINE_EXAMPLES=$(or $(EXAMPLES),1000) THREEFS_MACHINE_STEPS=$(or $(STEPS),200) \
	$(BIN)/python -m pytest -s -x tests/e2e/test_filesystem_machine.py

mix: $(READY) ## Many processes, two clients, two mounts change the same names; then all is counted (MINUTES=5)
	THREEFS_MIX_SECONDS=$$((60 * $(or $(MINUTES),5))) $(BIN)/python -m pytest -s tests/e2e/test_mix.py

fuzz: $(READY) ## Bad bytes at every decoder and port (SECONDS=60 each, JSON=file)
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(JSON),--json $(JSON))

bit-flips: $(READY) ## Turn over 9,000 bits of content, records and tables, and see that each is noticed
	$(BIN)/python -m pytest tests/contract/test_bit_flips.py

# Compiled and run below docs/models/build, which git ignores.
models: ## Check the models of the protocol with spin: a short set (SET=base, parallel: all configurations of chain.pml, chain2.pml; ablate, parallel-ablate: without each rule; leader)
	@if command -v spin >/dev/null; then cd docs/models && python3 check.py $(or $(SET),quick); \
	else echo "models: skipped, spin is not installed (apt-get install spin)"; fi

bench: $(READY) ## Measure threefs beside the machine's limits and other systems (JSON=file PLOTS=dir ONLY=client SIZE=small ROUNDS=3 PEERS=harness WORK=dir INCAST=file)
	$(BIN)/python -m benchmarks $(if $(SIZE),--size $(SIZE)) $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	$(if $(PEERS),--peers $(PEERS)) $(if $(WORK),--work $(WORK)) $(if $(INCAST),--incast $(INCAST)) $(if $(PLOTS),--plots $(PLOTS)) $(if $(JSON),--json $(JSON))

bench-ml: $(READY) ## Measure loader and checkpoints beside the load generator and others (JSON=file ROUNDS=3 ONLY=loader SIZE=small BESIDE=mosaic KILLS=10 MOSAIC=python PEERS=harness WORK=dir)
	$(BIN)/python -m benchmarks.ml $(if $(SIZE),--size $(SIZE)) $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	$(if $(BESIDE),--beside $(BESIDE)) $(if $(PEERS),--peers $(PEERS)) $(if $(WORK),--work $(WORK)) $(if $(HISTORIES),--histories $(HISTORIES)) $(if $(KILLS),--kills $(KILLS)) $(if $(MOSAIC),--mosaic-python $(MOSAIC)) $(if $(JSON),--json $(JSON))

bench-grow: $(READY) ## Measure a cluster that grows, shrinks and is repaired, and a large plan (JSON=file SIZE=small ONLY=placement PROCESSES=500)
	$(BIN)/python -m benchmarks.grow $(if $(SIZE),--size $(SIZE)) $(if $(ONLY),--only $(ONLY)) $(if $(PROCESSES),--processes $(PROCESSES)) $(if $(JSON),--json $(JSON))

bench-scale: $(READY) ## Simulate reads of 180 storage nodes and 400 to 1,000 clients (JSON=file PLOTS=dir SEED=1 CALIBRATE=1)
	$(BIN)/python -m benchmarks.scale $(if $(SEED),--seed $(SEED)) $(if $(CALIBRATE),--calibrate) \
	$(if $(PLOTS),--plots $(PLOTS)) $(if $(JSON),--json $(JSON))

bench-smoke: $(READY) ## Measure the main ratios on this machine (JSON=file writes them)
	$(BIN)/python -m threefs_bench smoke $(if $(JSON),--json $(JSON))

bench-incast: $(READY) ## Measure request-to-send where packets are lost, in network namespaces (needs root, tc; JSON=file BUDGETS=4,16)
	$(BIN)/python -m tests.bench.incast $(if $(BUDGETS),--budgets $(BUDGETS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JSON),--json $(JSON))

bench-meta: $(READY) ## Measure the metadata: mount, engines, failures, a large directory (JSON=file QUICK=1 ONLY=mount PEERS=harness WORK=dir)
	$(BIN)/python -m tests.bench $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) $(if $(PEERS),--peers $(PEERS)) \
	$(if $(WORK),--work $(WORK)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JSON),--json $(JSON))

venv: $(READY) ## Set up .venv with the versions of constraints.txt

$(READY): pyproject.toml constraints.txt deploy/make_venv.py
	$(if $(PYTHON),$(PYTHON) -m venv $(VENV),python3 deploy/make_venv.py $(VENV))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean: ## Remove .venv, caches and build results
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
