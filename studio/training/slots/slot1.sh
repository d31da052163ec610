#!/bin/bash
# slot1.sh COMMAND: the first lease of the GPU machine - speech tokenizer, speaker encoder, vocoder, and the teacher beside them.
#   unpack N         put .carry/corpus_N outside the checkout and decode its clips in the background
#   start            start the trainers (they wait for the first decoded clips)
#   teacher SECONDS  start the teacher on the last GPU (after teacher_a/stage.sh and teacher_b/stage.sh)
#   wait SECONDS     sleep, then status
#   status           a compact view of logs and figures
#   collect          wait for the trainers, tokenise everything, put the results under $OUT
# Environment: DEVICE=cpu and LIMIT=n for a dry run; TOK_MIN SPK_MIN VAR_MIN VOC_MIN minutes of each trainer (0 leaves it out);
# ROOT (default /tmp) for corpus and work folders; PROCS teacher processes; TINY=1 for tiny networks.
set -uo pipefail
ROOT=${ROOT:-/tmp}; CORPUS=$ROOT/corpus; CACHE=$CORPUS/cache; WORK=$ROOT/work; PY=${PYTHON:-python3}
export PYTHONPATH=$WORK/code:$ROOT/site PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
mkdir -p "$CORPUS" "$CACHE" "$WORK/out"

devices() {  # sets FIRST and LAST
  if [ "${DEVICE:-}" = cpu ]; then FIRST=cpu LAST=cpu; return; fi
  local count; count=$(nvidia-smi -L | grep -c '^GPU')
  FIRST=cuda:0 LAST=cuda:$((count - 1))
}

sync_code() {  # running trainers must not see the checkout change under them
  mkdir -p "$WORK/code"; [ -d "$WORK/code/studio" ] || cp -r studio "$WORK/code/"
}

launch() {  # launch NAME COMMAND...: in its own session, so that it survives this call
  local name=$1; shift
  setsid nohup "$@" >"$WORK/$name.log" 2>&1 < /dev/null &
  echo $! >"$WORK/$name.pid"
}

unpack() {
  sync_code
  cp -r ".carry/corpus_$1/." "$CORPUS/"
  if [ -d "$CORPUS/whl" ] && [ ! -d "$ROOT/site" ] && [ -z "${NO_WHEELS:-}" ]; then
    "$PY" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$ROOT/site" "$CORPUS"/whl/*.whl || return 1
  fi
  local zips; zips=$(cd ".carry/corpus_$1" && ls data_*.zip)
  # shellcheck disable=SC2086
  launch "decode_$1" "$PY" -m studio.training.corpus "$CORPUS" "$CACHE" --name "data_$1" --zips $zips --limit "${LIMIT:-0}"
}

start() {
  sync_code; devices
  local tiny_tok="" tiny_spk="" tiny_voc=""
  if [ -n "${TINY:-}" ]; then
    tiny_tok="--rows 8 --crop-tokens 40 --dim 64 --blocks 2 --capacity-tokens 60000 --capacity-clips 900 --report-s 10"
    tiny_spk="--rows 16 --crop-tokens 30 --channels 48 --capacity-tokens 60000 --capacity-clips 900 --report-s 10"
    tiny_voc="--rows 2 --crop-tokens 10 --base 32 --f0-channels 32 --period-width 4 --spectrum-width 4 --capacity-tokens 60000 --capacity-clips 900 --report-s 20"
  fi
  # shellcheck disable=SC2086
  trainer() { local name=$1 minutes=$2; shift 2; [ "$minutes" = 0 ] || launch "$name" "$PY" -m "$@" --minutes "$minutes"; }
  local common="$CACHE $CORPUS/speakers.json $WORK/out"
  trainer tokenizer "${TOK_MIN:-6}" studio.training.speech_tokenizer $common --device $FIRST $tiny_tok
  trainer variant "${VAR_MIN:-4}" studio.training.speech_tokenizer $common --device $FIRST --name speech_tokenizer_7 --code-dims 7 $tiny_tok
  trainer speaker "${SPK_MIN:-2.5}" studio.training.speaker $common --device $LAST $tiny_spk
  trainer vocoder "${VOC_MIN:-8}" studio.training.vocoder $common --device $FIRST $tiny_voc
}

teacher() {
  devices
  launch teacher bash "$ROOT/teacher/teacher_run.sh" "$ROOT/gen" "$1" "${PROCS:-12}" "${LAST#cuda:}"
}

status() {
  echo "== $(date -u +%T)"; nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader 2>/dev/null | tr '\n' ' '
  local name pid
  for pid in "$WORK"/*.pid; do
    name=$(basename "$pid" .pid); kill -0 "$(cat "$pid")" 2>/dev/null && echo -n "$name:up " || echo -n "$name:ended "
  done; echo
  for name in "$WORK"/out/*.jsonl; do [ -f "$name" ] && { echo "-- $(basename "$name")"; tail -n 2 "$name" | cut -c1-900; }; done
  for name in "$WORK"/*.log; do
    if grep -qE 'Traceback|Error|failed' "$name"; then echo "!! $name"; tail -n 4 "$name" | cut -c1-300; fi
  done
  grep -h total_x_est "$WORK/teacher.log" 2>/dev/null | tail -n 1; grep -h TOTAL "$WORK/teacher.log" 2>/dev/null
  return 0
}

await() {  # await NAME SECONDS
  local pid deadline=$((SECONDS + $2)); pid=$(cat "$WORK/$1.pid" 2>/dev/null) || return 0
  while kill -0 "$pid" 2>/dev/null && [ $SECONDS -lt $deadline ]; do sleep 1; done
  if kill -0 "$pid" 2>/dev/null; then echo "$1 still runs after $2 s"; return 1; fi
}

collect() {
  local out=${OUT:-$WORK/collected} name; mkdir -p "$out"
  [ "${DEVICE:-}" = cpu ] && local device=cpu || local device=cuda:0
  for name in tokenizer variant speaker; do await "$name" "${PATIENCE_S:-90}"; done
  await teacher "${PATIENCE_S:-90}"
  local parts; parts=$(cd "$CACHE" && ls data_*.json.gz | sed 's/.json.gz//')
  if [ -f "$ROOT/gen/index.jsonl.gz" ]; then
    "$PY" -m studio.training.corpus "$ROOT/gen" "$CACHE" --name gen --limit "${LIMIT:-0}" && parts="$parts gen"
    cp "$ROOT/gen/index.jsonl.gz" "$out/gen_index.jsonl.gz"
  fi
  for name in ${TOKENIZERS:-speech_tokenizer}; do
    # shellcheck disable=SC2086
    "$PY" -m studio.training.encode "$CACHE" "$out" --name "tokens_${name#speech_}" --parts $parts --device $device \
      --tokenizer "$WORK/out/$name.pt" --ratios ${RATIOS:-1.0 0.9 1.1}
  done
  await vocoder "${VOCODER_PATIENCE_S:-30}"
  tar cf "$out/weights.tar" -C "$WORK/out" $(cd "$WORK/out" && ls sp*.pt)
  [ -f "$WORK/out/hift.pt" ] && tar cf "$out/hift.tar" -C "$WORK/out" hift.pt hift_judges.pt
  tar czf "$out/logs.tar.gz" -C "$WORK" $(cd "$WORK" && ls *.log) $(cd "$WORK" && ls out/*.jsonl)
  ls -l "$out"; status
}

command=$1; shift
case $command in
  unpack | start | teacher | status | collect) "$command" "$@" ;;
  wait) sleep "$1"; status ;;
  *) echo "unknown command $command"; exit 2 ;;
esac
