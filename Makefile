# Every target works as the first command typed after a clone: each sets up `.venv` by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INTEROP ?= .venv-interop

.PHONY: demo test pytest browser torture interop setup lint format bench docs pages film clean

demo: setup          ## The main job, small enough for a laptop
	$(BIN)/alewm demo --out runs/demo

test: lint pytest    ## Lint, type-check and test

pytest: setup        ## The tests alone
	$(BIN)/pytest -n 2 --dist worksteal --durations 10

browser: setup       ## The explorer in a real Chromium, which must be installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[explore]' playwright
	$(BIN)/pytest -q tests/browser/explorer_in_chromium.py

torture: setup       ## Kills, full disks, damaged files, two writers, signals and a soak: an hour, or TORTURE_SECONDS
	$(BIN)/python tests/torture/campaign.py --seconds $(or $(TORTURE_SECONDS),3600)

interop:             ## The bridges against the real packages, in an environment of its own
	$(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,push-t,lance]'
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement tests/interop_real/requirements.txt
	$(if $(STABLE_WORLDMODEL),$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall '$(STABLE_WORLDMODEL)')
	for set in transformers-4 lerobot-0.3.3 lerobot-0.4.4; do \
		$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(INTEROP)/overlays/$$set --requirement tests/interop_real/$$set.txt || exit 1; \
	done
	@# torchvision has no CPU build: its Python part is used, without its compiled operators (tests/interop_real/torchvision_on_cpu.py).
	cp tests/interop_real/torchvision_on_cpu.py $$($(INTEROP)/bin/python -c 'import site; print(site.getsitepackages()[0])')
	echo 'import torchvision_on_cpu' > $$($(INTEROP)/bin/python -c 'import site; print(site.getsitepackages()[0])')/torchvision_on_cpu.pth
	$(INTEROP)/bin/python -m pytest -rs -o python_files='check_*.py' -o filterwarnings=default tests/interop_real

setup: $(READY)      ## The environment alone

$(READY): pyproject.toml lab/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "alewm needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,push-t,mujoco]' --editable lab
	@# Of dm_control and ogbench what the extra cannot bring on Python 3.13 (docs/install.md).
	$(BIN)/python -c 'import dm_control, ogbench' 2> /dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps dm_control ogbench
	@# Names a missing system library for drawing; installs it only where that was asked for, and no password is needed.
	$(BIN)/python -m alewm.envs.opengl
	$(if $(filter yes,$(SYSTEM_PACKAGES))$(CI),$(BIN)/python -m alewm.envs.opengl | grep -q 'draws off screen' || \
		$$(test "$$(id -u)" = 0 || echo sudo -n) sh -c 'apt-get update -qq; apt-get install -y -qq libosmesa6' || true)
	touch $(READY)

lint: setup          ## What a change must pass before it is tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup        ## Let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup         ## Measure the fast paths beside the references
	$(BIN)/alewm-lab bench regularizer

docs: setup          ## The documentation site, into site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

film: setup          ## The moving picture of the README, which takes minutes
	$(BIN)/python -m alewm_lab.publishing.tasks_film

clean:               ## Remove everything the other targets made, except runs/
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
