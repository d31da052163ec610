#!/usr/bin/env bash
# gpu_session.sh STEP: what can be shown on a GPU alone - each step one command, for a machine without a network.
#   pack FOLDER      here: stand-in ONNX files and the wheels that the machine lacks beside vLLM's, into FOLDER (.carry/gpu)
#   unpack FOLDER    there: FOLDER's wheels into $SITE, and the speech LM made known to vLLM
#   folder           a checkpoint of the official size in the official layout, 3.5 GB, into $WORK/official
#   table            first audio and sound a second at 1 to 128 streams, waterfall and growth curve, from one start
#   waterfall growth these parts of it alone
#   solve            launches and milliseconds of a solve: our own products and the library's, and splits of the keys
#   flow vocoder     milliseconds of a step of each by rows, without the studio around them
#   profile          kernels, launches and busy share of a token2wav step of $PROFILED rows (1,32)
#   ras              microseconds of the sampling law's step, its kernel against torch, and whether they draw the same
#   lm               milliseconds of an LM step by batch size, alone and beside token2wav, and token2wav beside it
#   variants         why the LM is slow beside token2wav, and what its settings gain: those of $VARIANTS, a start or two each
#   baseline         plain serving of the same models: one request at a time, and a static batch
#   parity           flow and vocoder in the precision that is shipped: each array at least 30 dB above its error
#   seeds            100 seeds alone and beside 31 others, without and with batch invariance, and tokens a second
#   precisions       the LM in fp8 beside bfloat16: tokens, laws, tokens a second; MODEL=folder for another checkpoint
#   modes            that folder through the API, without a page, in every mode
#   sound            MODEL=a copy of assets/voice: 20 sentences of each set in each of $PRECISIONS, to be judged elsewhere
#   two              MODEL and the full-size folder loaded at once, and each heard
#   all [STEP ...]   folder, table, profile, flow, vocoder, ras, lm, baseline, parity, or those named; goes on after a step
#                    that fails, and ends with 1 then; $OUT is packed into $BACK, if that is set, after each
# Each step is ended after its own limit, and keeps what it had written into $OUT by then: files of figures are appended to.
# Environment: SITE (packages, default /tmp/site), WORK (default /tmp/gpu), OUT (figures, default $WORK/out), PYTHON,
# CARRY (packed folder, default .carry/gpu), COMMIT (what this tree is, where .git did not travel), FLAGS (of app.py, for
# table and profile, beside those below), VARIANTS (decode pieces all mps take 4 to 5 minutes; sync and loud, 2 more),
# PRECISIONS (auto fp8), BACK (a folder whose files come back from the machine: one call for all steps loses no lease).
# A dry run on a CPU: DEVICE=cpu SIZE=small REQUESTS=4 BESIDE=3 gpu_session.sh all folder table profile lm baseline
set -uo pipefail
SITE=${SITE:-/tmp/site}; WORK=${WORK:-/tmp/gpu}; OUT=${OUT:-$WORK/out}; PY=$(command -v "${PYTHON:-python3}")
[[ $PY = /* ]] || PY=$PWD/$PY  # pip runs in another folder
DEVICE=${DEVICE:-cuda}; SIZE=${SIZE:-full}; CARRY=${CARRY:-.carry/gpu}; COMMIT=${COMMIT:-}
VARIANTS=${VARIANTS:-decode pieces all mps}
export PATH=$PATH:$SITE/bin PYTHONPATH=$SITE:$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
mkdir -p "$WORK/cache" "$OUT"
OFFICIAL=(--model-dir "$WORK/official" --cache-dir "$WORK/cache" --device "$DEVICE")
TIMED=(--model-dir "$WORK/timed" --cache-dir "$WORK/cache" --device "$DEVICE")
read -ra GIVEN <<<"${FLAGS:-}"
# The driver numbers all GPUs of the machine, whichever are visible.
ONE=(--commit "$COMMIT"); [[ ${CUDA_VISIBLE_DEVICES:-} =~ ^[0-9]+$ ]] && ONE+=(--gpu "$CUDA_VISIBLE_DEVICES")
OPEN=(--max-running 256 --queue-size 1000 --max-per-client 1000 --takes-max-mb 0)
if [ "$DEVICE" = cuda ]; then
  LM_STREAMS=1,8,64,128; LM_ROWS=1,32; LM_BESIDE=1,64; LM_SECONDS=3; LM_SETTINGS=(--set gpu_memory_utilization=0.1)
  LOADS=(--seconds 3 --streams 1,8,32,64 --burst 128); GROWTH=(--growth-streams 1,32); PLAIN=${PLAIN:-1,8}; PLAYS=1; CODES=6561; PROFILED=${PROFILED:-1,32}
  SERVED=("${OPEN[@]}" --max-num-seqs 128 --max-batch-rows 128 --gpu-memory-utilization 0.1 --flow-pool-gib 100)
else
  LM_STREAMS=1,4; LM_ROWS=2; LM_BESIDE=1,3; LM_SECONDS=1; LM_SETTINGS=(--set kv_cache_gib=0.1 --tokens 20)
  LOADS=(--seconds 3 --streams 1 --burst 3 --rounds 1 --fewest 4); GROWTH=(--growth-streams 1,2 --growth-s 12); PLAIN=${PLAIN:-1,2}
  PLAYS=1; CODES=243; PROFILED=${PROFILED:-1,2}; SERVED=("${OPEN[@]}" --kv-cache-gib 0.1)
fi

pack() {
  local to=${1:-$CARRY} made; mkdir -p "$to/whl"; to=$(cd "$to" && pwd); made=$(mktemp -d)
  "$PY" -m tests.official_layout "$made" small && cp "$made"/*.onnx "$to/"; rm -rf "$made"
  # Pinned as in requirements-cpu.lock; pip writes into the folder that it stands in, so it stands elsewhere.
  local names='httpx httpcore h11 anyio click prometheus-client psutil soxr websockets wetext contractions textsearch anyascii pyahocorasick kaldifst pyloudnorm pypinyin misaki PyJWT cryptography py-spy'
  local lock=$PWD/requirements-cpu.lock name pins=()
  for name in $names; do pins+=("$(grep -iE "^${name//[-_]/[-_]}==" "$lock" | sed 's/ .*//' | grep . || echo "$name")"); done
  (cd "$to/whl" && "$PY" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 "${pins[@]}")
  du -sh "$to"
}

unpack() {
  mkdir -p "$SITE/cosyvoice_studio-0.dist-info"
  "$PY" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$SITE" "${1:-$CARRY}"/whl/*.whl
  printf 'Metadata-Version: 2.1\nName: cosyvoice-studio\nVersion: 0\n' >"$SITE/cosyvoice_studio-0.dist-info/METADATA"
  # As in pyproject.toml.
  printf '[%s]\ncosyvoice_studio = studio.models.speech_lm.%s\n' vllm.general_plugins plugin:register \
    vllm.logits_processors ras_processor:RepetitionAwareSampling >"$SITE/cosyvoice_studio-0.dist-info/entry_points.txt"
}

# within SECONDS COMMAND...: the command, ended after so long
within() { timeout -k 10 "$@"; }

folder() {
  [ -f "$WORK/official/spk2info.pt" ] && return
  local given=(); [ -d "$CARRY" ] && given=("$CARRY")
  "$PY" -m tests.official_layout "$WORK/official" "$SIZE" "${given[@]}"
}

# The same weights, whose speech has a set length, for drawn at random they never end by themselves: five tokens for each
# byte of a text of some 40 bytes, which is one segment for the LM as an English sentence of 8 s is.
timed() {
  mkdir -p "$WORK/timed"; ln -sfn "$WORK/official"/* "$WORK/timed/"; rm -f "$WORK/timed/cosyvoice2.yaml"
  { cat "$WORK/official/cosyvoice2.yaml"
    printf 'checkpoint:\n  min_token_text_ratio: 5\n  max_token_text_ratio: 5\n'; } >"$WORK/timed/cosyvoice2.yaml"
}

inside() {
  local seconds=$1; shift; timed
  within "$seconds" "$PY" -m studio.bench.inside "$@" "${LOADS[@]}" "${GROWTH[@]}" "${ONE[@]}" --out "$OUT/table.jsonl" \
    "${TIMED[@]}" "${SERVED[@]}" "${GIVEN[@]}"
}
table() { inside 420 --parts http,engine,growth; }
waterfall() { inside 300 --parts http; }
growth() { inside 300 --parts growth; }

solve() {
  local few=(); [ "$DEVICE" = cuda ] || few=(--slots 1,2 --seconds 2,4 --splits '1:1,2' --repeat 1)
  within 180 "$PY" -m studio.bench.flow_solve --device "$DEVICE" --size "${SIZE/small/mini}" "${few[@]}" --commit "$COMMIT" \
    --out "$OUT/solve.jsonl"
}

flow() {
  within 150 "$PY" -m studio.bench.flow_step --device "$DEVICE" --size "${SIZE/small/mini}" --out "$OUT/flow.jsonl"
}

vocoder() {
  within 120 "$PY" -m studio.bench.vocoder_step --device "$DEVICE" --size "${SIZE/small/mini}" --commit "$COMMIT" \
    --out "$OUT/vocoder.jsonl"
}

profile() {
  timed
  within 180 "$PY" -m studio.bench.profile_step --rows "$PROFILED" --codes "$CODES" --commit "$COMMIT" --out "$OUT/profile.txt" \
    "${TIMED[@]}" "${SERVED[@]}" "${GIVEN[@]}"
}

ras() {
  within 90 "$PY" -m studio.bench.ras_step --device "$DEVICE" --commit "$COMMIT" --out "$OUT/ras.jsonl"
}

lm() {
  within 240 "$PY" -m studio.bench.lm_step "${OFFICIAL[@]}" --streams "$LM_STREAMS" --beside-rows "$LM_ROWS" \
    --beside-streams "$LM_BESIDE" "${LM_SETTINGS[@]}" --seconds "$LM_SECONDS" --commit "$COMMIT" --out "$OUT/lm.jsonl"
}

# Each variant in its own time; a row names its variant, how token2wav was started (way), and the cores used and withheld.
variants() {
  local failed=0 name one=${LM_ROWS%%,*} most=${LM_BESIDE##*,}
  for name in $VARIANTS; do
    case $name in
      decode) variant decode 140 --streams "$LM_STREAMS" --check --beside-rows "$one" --beside-streams "$LM_BESIDE" --split --stacks ;;
      pieces|all) variant "$name" 120 --set "lm_graphs=$name" --streams "$LM_STREAMS" --check ;;
      mps) variant mps 150 --set gpu_sharing=mps --streams "$most" --beside-rows "$LM_ROWS" --beside-streams "$most" --ways default,later ;;
      sync) variant sync 70 --set async_scheduling=false --streams "$LM_STREAMS" ;;
      loud) variant loud 110 --streams "$most" --beside-rows "$one" --beside-streams "$most" --ways loud ;;
      *) echo "no variant $name"; false ;;
    esac || failed=1
  done
  return $failed
}

# variant NAME SECONDS FLAG...
variant() {  # of one base, whatever the defaults are by now; a later --set wins
  local name=$1 seconds=$2; shift 2
  within "$seconds" "$PY" -m studio.bench.lm_step "${OFFICIAL[@]}" "${LM_SETTINGS[@]}" --set enable_prefix_caching=false \
    --set lm_graphs=decode --set gpu_sharing=slices --seconds "$LM_SECONDS" "$@" --label "$name" --commit "$COMMIT" --out "$OUT/lm_variants.jsonl" || { echo "variant $name failed or was cut off"; return 1; }
}

baseline() {
  timed
  local plain=(--folder "$WORK/timed" --cache-dir "$WORK/cache" --voice Clara --device "$DEVICE" --plays "$PLAYS" --seconds 3)
  within 280 "$PY" -m studio.bench.baseline naive batch "${plain[@]}" --streams "$PLAIN" "${ONE[@]}" --out "$OUT/table.jsonl"
}

parity() {
  # Not 04_stream_session: its samples follow the pitch, whose rounding moves their phase (studio/parity/vocoder.py).
  local sizes='*'; [ "$SIZE" = full ] || sizes='*mini'
  within 240 "$PY" -m studio.parity tests/fixtures --device "$DEVICE" --least-snr-db 30 --only "0[235]_$sizes" "04_flow$sizes" | tee "$OUT/parity.txt"
}

seeds() {
  within 480 "$PY" -m studio.bench.seeds "${OFFICIAL[@]}" --requests "${REQUESTS:-100}" --beside "${BESIDE:-31}" \
    --out "$OUT/seeds.jsonl"
}

precisions() {
  within 300 "$PY" -m studio.bench.precisions --model-dir "${MODEL:-$WORK/official}" --cache-dir "$WORK/cache" --device "$DEVICE" \
    --set gpu_memory_utilization=0.2 --commit "$COMMIT" --out "$OUT/precisions.jsonl"
}

modes() {
  within 400 "$PY" -m studio.bench.modes "${OFFICIAL[@]}" --log-level info | tee "$OUT/modes.txt"
}

# spoken NAME FLAG...: the studio with MODEL until $SPOKEN ends; what that wrote is in $OUT
spoken() {
  local name=$1 app port=7999 url=http://127.0.0.1:7999; shift
  "$PY" app.py --page false --port $port --device "$DEVICE" --model-dir "$MODEL" --data-dir "$WORK/data-$name" \
    --cache-dir "$WORK/cache" "$@" >"$OUT/app_$name.log" 2>&1 &
  app=$!
  until curl -sf $url/health >/dev/null || ! kill -0 $app 2>/dev/null; do sleep 0.5; done
  $SPOKEN "$name" $url; local ended=$?
  kill $app; wait $app 2>/dev/null
  return $ended
}
if [ "$DEVICE" = cuda ]; then BESIDES=(--gpu-memory-utilization 0.1 --flow-pool-gib 20); else BESIDES=(--kv-cache-gib 0.1); fi

sound() {
  local name failed=0; SPOKEN=said
  for name in ${PRECISIONS:-auto fp8}; do spoken "$name" "${BESIDES[@]}" --quantization "$name" || failed=1; done
  return $failed
}
said() {
  within 150 "$PY" -m studio.evaluate --url "$2" --out "$WORK/said-$1" --keep-audio "$WORK/said-$1/clips" --speak-only --limit "${SENTENCES:-20}"
  tar czf "$OUT/said-$1.tgz" -C "$WORK/said-$1" .
}

two() { timed; SPOKEN=both spoken two "${BESIDES[@]}" --models second="$WORK/timed"; }
both() {
  local tries=240 name body
  until curl -s "$2/v1/models" | grep -q '"id":"second","object"' || ! ((tries--)); do sleep 0.5; done
  curl -s "$2/v1/models" >"$OUT/models.json"
  for name in second first; do
    body='{"input":"Both models speak.","voice":"Clara","response_format":"wav"'; [ $name = second ] && body+=',"model":"second"'
    curl -s -o "$OUT/$name.wav" -w "$name %{http_code} %{size_download} bytes, first after %{time_starttransfer} s\n" \
      -H 'content-type: application/json' -d "$body}" "$2/v1/audio/speech" | tee -a "$OUT/two.txt"
  done
  [ "$DEVICE" != cuda ] || nvidia-smi --query-gpu=memory.used --format=csv,noheader | tee -a "$OUT/two.txt"
  [ "$(grep -c ' 200 ' "$OUT/two.txt")" = 2 ]
}

all() {
  local failed=0 step
  [ $# -gt 0 ] || set -- folder table profile flow vocoder ras lm baseline parity
  for step in "$@"; do
    echo "== $step $SECONDS s"; $step || { echo "== $step failed"; failed=1; }
    [ -z "${BACK:-}" ] || tar czf "$BACK/out.tgz" -C "$OUT" .
  done
  echo "== end $SECONDS s"
  return $failed
}

step=${1:?a step, or all; see the head of this file}; shift
$step "$@"
