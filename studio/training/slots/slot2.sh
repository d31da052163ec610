#!/bin/bash
# slot2.sh COMMAND: the second lease of the GPU machine - speech LM on the first GPU, flow on the last, vocoder beside the LM.
#   unpack lm      put .carry/lm outside the checkout and start the LM at once (LM_MIN minutes)
#   unpack N       put .carry/corpus_N there and decode its clips in the background (N = 1, 2, 3)
#   start          wait for the decoded clips, then start the flow (FLOW_MIN) and the vocoder (VOC_MIN) on them
#   wait SECONDS   sleep, then status
#   status         a compact view of logs and figures
#   collect        wait for the trainers (PATIENCE_S), put weights in pieces of 15 MB and logs under $OUT
#   extend         train the LM on from its own weights for LM_MIN minutes at LM_RATE (if time is left)
# Environment: LM_MIN FLOW_MIN VOC_MIN minutes (0 leaves that part out); LM_ARGS FLOW_ARGS VOC_ARGS more flags;
# DEVICE=cpu and LIMIT=n for a dry run; TINY=1 for tiny networks; ROOT (default /tmp) for corpus and work folders.
set -uo pipefail
ROOT=${ROOT:-/tmp}; CORPUS=$ROOT/corpus; CACHE=$CORPUS/cache; WORK=$ROOT/work; IN=$ROOT/in; PY=${PYTHON:-python3}
export PYTHONPATH=$WORK/code:$ROOT/site PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
mkdir -p "$CORPUS" "$CACHE" "$WORK/out" "$IN"
if [ -n "${TINY:-}" ]; then
  LM_ARGS="--hidden 128 --layers 2 --ffn 256 --rows 4 --width 512 --validation-rows 4 --workers 1 --reader-s 3 --trials 8 --report-s 15 --finish-s 5 ${LM_ARGS:-}"
  FLOW_ARGS="--rows 4 --crop-tokens 72 --encoder 96 --encoder-ffn 64 --channels 64 --heads 1 --mid 1 --ffn 64 --ratios 1.0 1.1 --report-s 15 --finish-s 5 ${FLOW_ARGS:-}"
  VOC_ARGS="--rows 2 --crop-tokens 10 --base 32 --f0-channels 32 --period-width 4 --spectrum-width 4 --capacity-tokens 60000 --capacity-clips 900 --report-s 20 ${VOC_ARGS:-}"
fi

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
  sync_code; devices
  if [ "$1" = lm ]; then
    cp -r .carry/lm/. "$IN/"
    # shellcheck disable=SC2086
    [ "${LM_MIN:-13}" = 0 ] || launch lm "$PY" -m studio.training.lm "$IN/lm_data.npz" "$WORK/out" --device $FIRST --minutes "${LM_MIN:-13}" ${LM_ARGS:-}
    sleep "${LOOK_S:-20}"; status; return
  fi
  cp -r ".carry/corpus_$1/." "$CORPUS/"
  if [ -d "$CORPUS/whl" ] && [ ! -d "$ROOT/site" ] && [ -z "${NO_WHEELS:-}" ]; then
    "$PY" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$ROOT/site" "$CORPUS"/whl/*.whl || return 1
  fi
  local zips; zips=$(cd ".carry/corpus_$1" && ls data_*.zip)
  # shellcheck disable=SC2086
  launch "decode_$1" "$PY" -m studio.training.corpus "$CORPUS" "$CACHE" --name "data_$1" --zips $zips --limit "${LIMIT:-0}"
}

await() {  # await NAME SECONDS
  local pid deadline=$((SECONDS + $2)); pid=$(cat "$WORK/$1.pid" 2>/dev/null) || return 0
  while kill -0 "$pid" 2>/dev/null && [ $SECONDS -lt $deadline ]; do sleep 1; done
  if kill -0 "$pid" 2>/dev/null; then echo "$1 still runs after $2 s"; return 1; fi
}

start() {
  devices
  for n in 1 2 3; do await "decode_$n" 90; done
  # shellcheck disable=SC2086
  [ "${FLOW_MIN:-11}" = 0 ] || launch flow "$PY" -m studio.training.flow "$CACHE" "$CORPUS/speakers.json" "$IN/speech_tokenizer.pt" \
    "$IN/speaker_encoder.pt" "$WORK/out" --device $LAST --minutes "${FLOW_MIN:-11}" ${FLOW_ARGS:-}
  local resume=""; [ -f "$IN/hift.pt" ] && resume="--resume $IN/hift.pt"
  # shellcheck disable=SC2086
  [ "${VOC_MIN:-9}" = 0 ] || launch vocoder "$PY" -m studio.training.vocoder "$CACHE" "$CORPUS/speakers.json" "$WORK/out" \
    --device $FIRST --minutes "${VOC_MIN:-9}" $resume ${VOC_ARGS:---judges-from 0.02 --rate 3e-4}
  sleep "${LOOK_S:-25}"; status
}

extend() {
  devices; await lm "${PATIENCE_S:-60}"
  # shellcheck disable=SC2086
  launch lm "$PY" -m studio.training.lm "$IN/lm_data.npz" "$WORK/out" --device $FIRST --minutes "${LM_MIN:-4}" \
    --resume "$WORK/out/speech_lm.pt" --name speech_lm_more --rate "${LM_RATE:-4e-4}" ${LM_ARGS:-}
}

status() {
  echo "== $(date -u +%T)"; nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader 2>/dev/null | tr '\n' ' '
  local name pid
  for pid in "$WORK"/*.pid; do
    [ -f "$pid" ] || continue
    name=$(basename "$pid" .pid); kill -0 "$(cat "$pid")" 2>/dev/null && echo -n "$name:up " || echo -n "$name:ended "
  done; echo
  for name in "$WORK"/out/*.jsonl; do [ -f "$name" ] && { echo "-- $(basename "$name")"; tail -n "${LINES_SHOWN:-3}" "$name" | cut -c1-700; }; done
  for name in "$WORK"/*.log; do
    if grep -qE 'Traceback|Error|failed' "$name"; then echo "!! $name"; tail -n 5 "$name" | cut -c1-400; fi
  done
  return 0
}

collect() {
  local out=${OUT:-$WORK/collected} name files=""; mkdir -p "$out"
  for name in lm flow vocoder; do await "$name" "${PATIENCE_S:-120}"; done
  for name in ${PARTS:-speech_lm speech_lm_more flow hift}; do [ -f "$WORK/out/$name.pt" ] && files="$files $name.pt"; done
  # shellcheck disable=SC2086
  tar cf - -C "$WORK/out" $files | split -b 15000000 - "$out/weights.tar."
  tar czf "$out/logs.tar.gz" -C "$WORK" $(cd "$WORK" && ls ./*.log) $(cd "$WORK" && ls out/*.jsonl)
  ls -l "$out"; status
}

command=$1; shift
case $command in
  unpack | start | status | collect | extend) "$command" "$@" ;;
  wait) sleep "$1"; status ;;
  *) echo "unknown command $command"; exit 2 ;;
esac
