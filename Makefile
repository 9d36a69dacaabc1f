# Two commands set everything up on a machine with Python >= 3.11 and gcc: `make build`, then `make test`.
PYTHON ?= python3
VENV ?= .venv
# another than what constraints.txt pins
TRITON ?= 3.6.0
VENV_TRITON := .venv-triton-$(TRITON)
JOBS ?= $(shell nproc)
# of which `make wheels` makes wheels; artifacts/full is what `make bundles` builds
BUNDLES ?= artifacts
# names the Python that PYTHON is: cpython-313t
TAG := $(shell $(PYTHON) -c 'import sys; print(sys.implementation.cache_tag + sys.abiflags)')
BIN := $(VENV)/bin
NOJIT := $(BIN)/nojit
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard runtime/binding/*.[ch] runtime/binding/*/*.[ch] runtime/engine/*/*.[ch] runtime/engine/*.map)
export PIP_QUIET = 1

.PHONY: build bundles bytecode manifests-fit test test-ci test-aot test-abuse test-kernels test-runtime test-compile test-fast test-triton test-triton-samples test-triton-launch test-recording test-python test-debug lint format types bench sanitize wheels clean fuzz coverage-engine

build: $(VENV)/.build ## the newcomer's build: the core profile for sm_80 and sm_90
	$(NOJIT) build manifests --profile core --arch sm_80 --arch sm_90 --jobs $(JOBS) --out artifacts

bundles: $(VENV)/.build ## every variant of every manifest, for every architecture that they name
	$(NOJIT) build manifests --profile full --jobs $(JOBS) --out artifacts/full

wheels: build $(VENV)/.test ## nojit's own wheel and sdist, those of nojit-autoserve, and wheels of the bundles in BUNDLES
	SOURCE_DATE_EPOCH=315532800 $(BIN)/python -m build --outdir dist
	SOURCE_DATE_EPOCH=315532800 $(BIN)/python -m build --outdir dist autoserve
	$(NOJIT) wheel $(BUNDLES) --license Apache-2.0 --license-file LICENSE --out dist
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz

manifests-fit: $(VENV)/.build ## every manifest expands and fits its kernels
	$(NOJIT) build manifests --dry-run --profile full

test: test-compile ## everything that needs no GPU
	$(MAKE) --no-print-directory --output-sync=line --jobs=$(JOBS) test-aot test-kernels test-runtime test-abuse

# the longest first, so that no processor waits for the last; bytecode is there, and what waits for it would start last
test-ci: test-compile ## the tests, and those of the launch path in three ways: as always, under sanitizers, with Python's debugging allocator
	$(MAKE) --no-print-directory --output-sync=line --jobs=$(JOBS) --old-file=bytecode test-aot test-kernels test-runtime sanitize test-debug test-abuse test-triton-launch

test-compile: $(VENV)/.test bytecode ## one variant per kernel and dtype
	$(BIN)/python -m pytest -n $(JOBS) tests/aot/test_compile_manifests.py

# where Python is told to write no bytecode, each of the many processes that tests start would compile the sources anew
bytecode: $(VENV)/.test
	$(BIN)/python -m compileall -q aot kernels package runtime tests

test-aot: $(VENV)/.test bytecode ## the build and its commands
	$(BIN)/python -m pytest -m "not gpu" -o cache_dir=.pytest_cache/aot --ignore tests/aot/test_compile_manifests.py tests/aot

test-abuse: $(VENV)/.test bytecode ## hostile input
	$(BIN)/python -m pytest -m "not gpu" -o cache_dir=.pytest_cache/abuse tests/abuse

test-kernels: $(VENV)/.test bytecode ## operators and kernels on small shapes
	$(BIN)/python -m pytest -m "not gpu" -o cache_dir=.pytest_cache/kernels tests/kernels

test-runtime: $(VENV)/.test bytecode ## all other tests
	$(BIN)/python -m pytest -m "not gpu" -o cache_dir=.pytest_cache/runtime --ignore tests/aot --ignore tests/abuse --ignore tests/kernels

test-fast: $(VENV)/.test bytecode ## what needs neither a GPU nor a compile
	$(BIN)/python -m pytest -m "not gpu and not triton and not slow"

test-triton: test-triton-samples test-triton-launch ## with another Triton: the oldest, or TRITON=3.8.0

test-triton-samples: $(VENV_TRITON)/.test ## one variant per kernel and dtype
	$(VENV_TRITON)/bin/python -m pytest -p no:cacheprovider -n $(JOBS) tests/aot/test_compile_manifests.py

test-triton-launch: $(VENV_TRITON)/.test ## what it compiles, launched on the fake driver
	$(VENV_TRITON)/bin/python -m pytest -p no:cacheprovider tests/aot/test_launch_*.py

test-recording: $(VENV_TRITON)/.torch ## recording and serving with another Triton: the oldest, or TRITON=3.8.0
	$(VENV_TRITON)/bin/python -m pytest -p no:cacheprovider -n $(JOBS) -m "not gpu" tests/runtime/recording tests/runtime/serve

test-python: .venv-$(TAG)/.test ## the runtime's tests on the Python that PYTHON names, without torch and Triton
	$(<D)/bin/python -m pytest -p no:cacheprovider -m "not gpu and not triton and not slow" tests/runtime tests/abuse

sanitize: $(VENV)/.test ## the launch path's tests under AddressSanitizer and UBSan
	PYTHON=$(abspath $(BIN)/python) tests/fakecuda/sanitize.sh

test-debug: $(VENV)/.test ## the same tests with Python's debugging allocator: memory overrun, freed twice, used without the GIL
	PYTHONMALLOC=debug NOJIT_FAULT_CODES=2,700,709 NOJIT_FUZZ_CALLS=500 $(BIN)/python -m pytest -q -p no:cacheprovider \
		-m "not gpu and not triton and not slow" --ignore tests/runtime/recording \
		--ignore tests/runtime/serve --ignore tests/runtime/autostart tests/runtime tests/fakecuda tests/abuse/test_calls.py \
		tests/abuse/test_nomemory.py tests/abuse/test_readers.py $(wildcard tests/abuse/test_launch_*.py)

fuzz: $(VENV)/.test ## the engine's readers with libFuzzer, a minute each; needs clang and llvm
	PYTHON=$(abspath $(BIN)/python) tests/fuzz/run.sh build/fuzz

coverage-engine: $(VENV)/.test ## which lines of the engine tests and fuzz seeds run, by file; needs clang and llvm
	PYTHON=$(abspath $(BIN)/python) tests/fakecuda/coverage.sh build/coverage

lint: $(VENV)/.test types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m tests.spec.wording

types: $(VENV)/.test
	MYPYPATH=typing $(BIN)/mypy -p nojit

format: $(VENV)/.test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.test ## needs a GPU
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/cold_start.py

# what pip says of an older Python names everything but that
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("error: expected Python 3.11 or newer, got " + sys.version.split()[0] + ": make PYTHON=..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.build: $(VENV)/bin/python $(SOURCES)
	$(PIP) install -c constraints.txt -e ".[build]"
	touch $@

# torch comes first and alone: a build for CUDA requires another Triton than constraints.txt, which pip then puts back with a warning
$(VENV)/.test: $(VENV)/.build
	$(PIP) install "$$(grep '^torch==' constraints.txt)"
	$(PIP) install -c constraints.txt -e ".[dev]"
	touch $@

$(VENV_TRITON)/.test: $(SOURCES)
	$(PYTHON) -m venv $(VENV_TRITON)
	$(VENV_TRITON)/bin/python -m pip --disable-pip-version-check install "triton==$(TRITON)" "numpy<2.4" pytest pytest-xdist hypothesis pyelftools -e ".[build]"
	touch $@

# a build of torch for CUDA brings a Triton of its own
$(VENV_TRITON)/.torch: $(VENV_TRITON)/.test constraints.txt
	$(VENV_TRITON)/bin/python -m pip --disable-pip-version-check install "$$(grep '^torch==' constraints.txt)"
	$(VENV_TRITON)/bin/python -m pip --disable-pip-version-check install --no-deps "triton==$(TRITON)"
	touch $@

# no constraints but for zstandard: the newest hypothesis has no wheel for each Python
.venv-$(TAG)/.test: $(SOURCES)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install --only-binary hypothesis pytest hypothesis pyelftools "$$(grep '^zstandard==' constraints.txt)" -e ".[cli]"
	touch $@

clean:
	rm -rf $(VENV) .venv-triton-* .venv-cpython-* build dist nojit.egg-info autoserve/build autoserve/*.egg-info runtime/*.so runtime/*.so.*
	rm -rf $(foreach suffix,nojit report.json provenance.json intoto.jsonl,artifacts/*.$(suffix))
	rm -rf $(addprefix artifacts/,full example debug tuning)
