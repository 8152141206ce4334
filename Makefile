# Every target sets up what it needs in .venv.
VENV := .venv
PYTHON ?= python3
RUN := $(VENV)/bin/python

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

.PHONY: venv
venv: $(VENV)/.ready
