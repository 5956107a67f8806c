# The commands of the repository. Each is complete on a fresh machine with nothing but Python.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Of the tests, on two cores: most of them wait most of the time.
WORKERS ?= 6

# With this variable, which images of containers like to set, every process of the tests compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test check bench campaign versions pictures site clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --upgrade 'pip>=25.1'  # from this version on it shows a bar while it unpacks
	$(BIN)/pip install --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: install  ## the same weights on 1 and 2 processes, also after kill -9 and a resume; then a speed-up table
	$(BIN)/python tools/demo.py

# With SLOW=1 also whole jobs on a real SLURM, drills, browsers, installations, more ranks: what CI runs.
SLOW ?=
SELECTED := not campaign and not gpu$(if $(SLOW),, and not slow)

test: install
	$(BIN)/pytest tests/gpu -m 'not campaign'  # skip where there is no GPU
	CUDA_VISIBLE_DEVICES= $(BIN)/pytest -m '$(SELECTED)' -n $(WORKERS) --dist loadfile

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install  ## ratios, side by side with the peers in one run
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,peers]'
	$(BIN)/python -m benchmarks

campaign: install  ## the full counts; the result goes to benchmarks/results/
	$(BIN)/pytest -m campaign

# What a job imports, with the oldest torch that README names and the newest: some gigabytes each.
TORCH ?= 2.6.0 2.14.1
versions:
	set -e; for version in $(TORCH); do \
	  $(PYTHON) -m venv build/torch-$$version; \
	  build/torch-$$version/bin/pip install --quiet "torch==$$version" --editable '.[dev]'; \
	  CUDA_VISIBLE_DEVICES= build/torch-$$version/bin/pytest -q -m 'not campaign and not gpu' -n $(WORKERS) \
	    --dist loadfile tests/runtime tests/strategies tests/snapshots; \
	done

pictures: install  ## of the README, from a real run
	$(BIN)/python tools/pictures.py

site: install  ## the documentation, in build/site: needs Python 3.11
	$(BIN)/python tools/build_site.py

clean:
	rm -rf $(VENV) dist build runs
