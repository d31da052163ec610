# machine.sh: what both slots share; sourced, never run. Sets paths and gives devices, launch, await, unpack, status.
# Environment: ROOT (default /tmp) holds corpus, work and site folders outside the checkout; DEVICE=cpu and LIMIT=n for a dry run.
ROOT=${ROOT:-/tmp}; CORPUS=$ROOT/corpus; CACHE=$CORPUS/cache; WORK=$ROOT/work; PY=${PYTHON:-python3}
export PYTHONPATH=$WORK/code:$ROOT/site PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
mkdir -p "$CORPUS" "$CACHE" "$WORK/out"

devices() {  # sets FIRST and LAST, equal on a machine of one GPU
  if [ "${DEVICE:-}" = cpu ]; then FIRST=cpu LAST=cpu; return; fi
  local count; count=$(nvidia-smi -L | grep -c '^GPU')
  FIRST=cuda:0 LAST=cuda:$((count - 1))
}

sync_code() {  # running trainers must not see the checkout change under them
  mkdir -p "$WORK/code"; [ -d "$WORK/code/studio" ] || cp -r studio "$WORK/code/"
  cp studio/training/slots/trainer.sh studio/training/slots/when_decoded.sh "$WORK/code/"
}

launch() {  # launch NAME COMMAND...: in its own session, so that it survives this call
  local name=$1; shift
  setsid nohup "$@" >"$WORK/$name.log" 2>&1 < /dev/null &
  echo $! >"$WORK/$name.pid"
}

trainer() {  # trainer NAME MINUTES MODULE ARGUMENTS...; 0 minutes leaves it out
  local name=$1 minutes=$2; shift 2
  [ "$minutes" = 0 ] || launch "$name" bash "$WORK/code/trainer.sh" "$@" --minutes "$minutes"
}

wheels() {  # soundfile reads Opus; the machine has numpy but neither soundfile nor cffi
  [ -z "${NO_WHEELS:-}" ] && [ -d "$CORPUS/whl" ] && [ ! -f "$ROOT/site/soundfile.py" ] || return 0
  "$PY" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$ROOT/site" "$CORPUS"/whl/*.whl
}

unpack() {  # unpack N: put .carry/corpus_N outside the checkout and decode its clips in the background
  sync_code
  cp -r ".carry/corpus_$1/." "$CORPUS/"
  wheels || return 1
  local zips; zips=$(cd ".carry/corpus_$1" && ls data_*.zip)
  # shellcheck disable=SC2086
  launch "decode_$1" "$PY" -m studio.training.corpus "$CORPUS" "$CACHE" --name "data_$1" --zips $zips --limit "${LIMIT:-0}"
}

await() {  # await NAME SECONDS
  local pid deadline=$((SECONDS + $2)); pid=$(cat "$WORK/$1.pid" 2>/dev/null) || return 0
  while kill -0 "$pid" 2>/dev/null && [ $SECONDS -lt $deadline ]; do sleep 1; done
  if kill -0 "$pid" 2>/dev/null; then echo "$1 still runs after $2 s"; return 1; fi
}

status() {
  echo "== $(date -u +%T)"
  nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader 2>/dev/null | tr '\n' ' '
  local name pid
  for pid in "$WORK"/*.pid; do
    [ -f "$pid" ] || continue
    name=$(basename "$pid" .pid); kill -0 "$(cat "$pid")" 2>/dev/null && echo -n "$name:up " || echo -n "$name:ended "
  done; echo
  for name in "$WORK"/out/*.jsonl; do
    [ -f "$name" ] && { echo "-- $(basename "$name")"; tail -n 2 "$name" | cut -c1-900; }
  done
  for name in "$WORK"/*.log; do
    if [ -f "$name" ] && grep -qE 'Traceback|Error|failed' "$name"; then echo "!! $name"; tail -n 4 "$name" | cut -c1-300; fi
  done
  grep -h total_x_est "$WORK/teacher.log" 2>/dev/null | tail -n 1; grep -h TOTAL "$WORK/teacher.log" 2>/dev/null
  return 0
}

pack_logs() { tar czf "$1" -C "$WORK" $(cd "$WORK" && ls *.log) $(cd "$WORK" && ls out/*.jsonl); }
