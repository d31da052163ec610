#!/usr/bin/env bash
# gpu_session.sh STEP: what can be shown on a GPU alone - each step one command, for a machine without a network.
#   pack FOLDER      here: stand-in ONNX files and the wheels that the machine lacks beside vLLM's, into FOLDER (.carry/gpu)
#   unpack FOLDER    there: FOLDER's wheels into $SITE, and the speech LM made known to vLLM
#   parity           flow and vocoder in the precision that is shipped: each array at least 30 dB above its error
#   folder           a checkpoint of the official size in the official layout, 3.5 GB, into $WORK/official
#   lm               milliseconds of an LM step by batch size, alone and beside token2wav, and token2wav beside it
#   seeds            100 seeds alone and beside 31 others, without and with batch invariance, and tokens a second
#   modes            that folder through the API, without a page, in every mode
#   all              folder, parity, lm, seeds, modes; goes on after a step that fails, and ends with 1 then
# Each step is ended after its own limit, and keeps what it had written into $OUT by then.
# Environment: SITE (packages, default /tmp/site), WORK (default /tmp/gpu), OUT (figures, default $WORK/out), PYTHON,
# CARRY (packed folder, default .carry/gpu), COMMIT (what this tree is, where .git did not travel).
# A dry run on a CPU: DEVICE=cpu SIZE=small REQUESTS=4 BESIDE=3 gpu_session.sh all
set -uo pipefail
SITE=${SITE:-/tmp/site}; WORK=${WORK:-/tmp/gpu}; OUT=${OUT:-$WORK/out}; PY=$(command -v "${PYTHON:-python3}")
[[ $PY = /* ]] || PY=$PWD/$PY  # pip runs in another folder
DEVICE=${DEVICE:-cuda}; SIZE=${SIZE:-full}; CARRY=${CARRY:-.carry/gpu}; COMMIT=${COMMIT:-}
export PYTHONPATH=$SITE:$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
mkdir -p "$WORK" "$OUT"
if [ "$DEVICE" = cuda ]; then
  LM_STREAMS=1,8,64,128; LM_ROWS=1,32; LM_BESIDE=1,64; LM_SETTINGS=(--set gpu_memory_utilization=0.1)
else
  LM_STREAMS=1,4; LM_ROWS=2; LM_BESIDE=1,3; LM_SETTINGS=(--set kv_cache_gib=0.1 --tokens 20 --seconds 1)
fi

pack() {
  local to=${1:-$CARRY} made; mkdir -p "$to/whl"; to=$(cd "$to" && pwd); made=$(mktemp -d)
  "$PY" -m tests.official_layout "$made" small && cp "$made"/*.onnx "$to/"; rm -rf "$made"
  # Pinned as in requirements-cpu.lock; pip writes into the folder that it stands in, so it stands elsewhere.
  local names='httpx httpcore h11 anyio click prometheus-client psutil soxr websockets wetext contractions textsearch anyascii pyahocorasick kaldifst pyloudnorm pypinyin PyJWT cryptography'
  local lock=$PWD/requirements-cpu.lock name pins=()
  for name in $names; do pins+=("$(grep -iE "^${name//[-_]/[-_]}==" "$lock" | sed 's/ .*//' | grep . || echo "$name")"); done
  (cd "$to/whl" && "$PY" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 "${pins[@]}")
  du -sh "$to"
}

unpack() {
  mkdir -p "$SITE/cosyvoice_studio-0.dist-info"
  "$PY" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$SITE" "${1:-$CARRY}"/whl/*.whl
  printf 'Metadata-Version: 2.1\nName: cosyvoice-studio\nVersion: 0\n' >"$SITE/cosyvoice_studio-0.dist-info/METADATA"
  printf '[vllm.general_plugins]\ncosyvoice_studio = studio.models.speech_lm.plugin:register\n' >"$SITE/cosyvoice_studio-0.dist-info/entry_points.txt"
}

# within SECONDS COMMAND...: the command, ended after so long
within() { timeout -k 10 "$@"; }

parity() {
  # Not 04_stream_session: its samples follow the pitch, whose rounding moves their phase (studio/parity/vocoder.py).
  local sizes='*'; [ "$SIZE" = full ] || sizes='*mini'
  within 240 "$PY" -m studio.parity tests/fixtures --device "$DEVICE" --least-snr-db 30 --only "0[235]_$sizes" "04_flow$sizes" | tee "$OUT/parity.txt"
}

folder() {
  [ -f "$WORK/official/spk2info.pt" ] && return
  local given=(); [ -d "$CARRY" ] && given=("$CARRY")
  "$PY" -m tests.official_layout "$WORK/official" "$SIZE" "${given[@]}"
}

lm() {
  within 240 "$PY" -m studio.bench.lm_step --model-dir "$WORK/official" --cache-dir "$WORK/cache" --device "$DEVICE" \
    --streams "$LM_STREAMS" --beside-rows "$LM_ROWS" --beside-streams "$LM_BESIDE" "${LM_SETTINGS[@]}" \
    --commit "$COMMIT" --out "$OUT/lm.jsonl"
}

seeds() {
  within 480 "$PY" -m studio.bench.seeds --model-dir "$WORK/official" --cache-dir "$WORK/cache" --device "$DEVICE" \
    --requests "${REQUESTS:-100}" --beside "${BESIDE:-31}" --out "$OUT/seeds.jsonl"
}

modes() {
  within 400 "$PY" -m studio.bench.modes --model-dir "$WORK/official" --cache-dir "$WORK/cache" --device "$DEVICE" | tee "$OUT/modes.txt"
}

all() {
  local failed=0 step
  for step in folder parity lm seeds modes; do
    echo "== $step"; $step || { echo "== $step failed"; failed=1; }
  done
  return $failed
}

step=${1:?a step: pack, unpack, parity, folder, lm, seeds, modes or all}; shift
$step "$@"
