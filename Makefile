# make run: set up and open the studio.   make test: everything that CI checks.   make help: the rest.
PYTHON ?= python3
VENV ?= .venv
DEVICE ?= auto
ARGS ?=

SETUP = $(PYTHON) -m studio.setup --venv $(VENV) --device $(DEVICE)
BIN = $(VENV)/bin
VOICE = assets/voice
ASIDE = .carry/voice

.PHONY: help install run test test-kernels test-fast lint readme weights-aside weights-back clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

install: ## the environment alone; CPU or CUDA by what the machine has (DEVICE=cpu or cuda to choose)
	$(SETUP)

run: ## install, then the studio at http://127.0.0.1:7860 (ARGS="--port 8000": flags of app.py)
	@$(SETUP)
	@exec $(BIN)/python app.py $(if $(filter-out auto,$(DEVICE)),--device $(DEVICE)) $(ARGS)

test: ## install with test tools (and Debian's Chromium if root), then every test
	@$(SETUP) --dev
	@$(MAKE) --no-print-directory test-kernels
	$(BIN)/python -m pytest -n 2 --no-loadscope-reorder --max-worker-restart 0

# In a folder of its own: beside a CPU's torch, whatever finds Triton would try to use it. As torch of the GPU machine has.
KERNELS = $(VENV)/kernels
TRITON = 3.6.0
$(KERNELS)/triton-$(TRITON).dist-info:
	@echo "installing triton $(TRITON), 0.2 GB ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(KERNELS) triton==$(TRITON)

test-kernels: $(KERNELS)/triton-$(TRITON).dist-info ## the GPU's own kernels, in Triton's interpreter
	PYTHONPATH=$(KERNELS) TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 tests/parity/test_*kernel*.py tests/parity/test_hift_window_gpu.py

test-fast: ## the unit tests: no torch, no engine, under 20 s
	@$(SETUP) --dev
	$(BIN)/python -m pytest -n 2 tests/unit

lint: ## ruff and mypy
	@$(SETUP) --dev
	$(BIN)/ruff check .
	$(BIN)/mypy

readme: ## write the parts of the READMEs that come from the code
	$(BIN)/python -m studio.readme

weights-aside: ## move the voice's weights out of the working tree's way (for GPU machines that copy it)
	@if [ -d $(VOICE) ]; then mkdir -p .carry && mv -T $(VOICE) $(ASIDE) && echo "$(VOICE) -> $(ASIDE)"; fi

weights-back: ## move them back
	@if [ -d $(ASIDE) ]; then mkdir -p assets && mv -T $(ASIDE) $(VOICE) && echo "$(ASIDE) -> $(VOICE)"; fi

clean: ## remove the environment and every cache; voices and weights stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
