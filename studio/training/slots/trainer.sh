#!/bin/bash
# trainer.sh MODULE ARGUMENTS...: run a trainer; if it dies, run it once more without CUDA graphs for the rest of its budget.
py=${PYTHON:-python3}
began=$("$py" -c 'import time; print(time.monotonic())')
"$py" -X began="$began" -m "$@" || { echo "trainer failed; once more, eager"; "$py" -X nograph -X began="$began" -m "$@"; }
