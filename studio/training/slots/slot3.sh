#!/bin/bash
# slot3.sh COMMAND: a lease for the flow alone - one flow on each GPU, trained for prompt encoders that exist.
#   unpack N         put .carry/corpus_N outside the checkout and decode its clips in the background
#   start            from .carry/encoders (`recover` writes them): flow_0 on the first GPU, flow_1 on the second, and so
#                    on, each when all PARTS (default 5) parts are decoded
#   wait SECONDS     sleep, then status
#   status           a compact view of logs and figures
#   collect          wait for the trainers, put weights and logs under $OUT (call with `save` at any time for what there is)
# Environment, beside machine.sh's: FLOW_MIN minutes; FLOW_0_ARGS, FLOW_1_ARGS ... what the flows differ in.
set -uo pipefail
source "$(dirname "$0")/machine.sh"
WEIGHTS=$WORK/encoders

gpus() { if [ "${DEVICE:-}" = cpu ]; then echo cpu; else nvidia-smi -L | sed -nE 's/^GPU ([0-9]+):.*/cuda:\1/p'; fi; }

start() {
  sync_code; mkdir -p "$WEIGHTS"; cp -r .carry/encoders/. "$WEIGHTS/"
  local number=0 device arguments
  for device in $(gpus); do
    arguments=FLOW_${number}_ARGS
    # shellcheck disable=SC2086
    launch "flow_$number" bash "$WORK/code/when_decoded.sh" "$CACHE" "${PARTS:-5}" \
      bash "$WORK/code/trainer.sh" studio.training.flow "$CACHE" "$CORPUS/speakers.json" \
      "$WEIGHTS/speech_tokenizer.pt" "$WEIGHTS/speaker_encoder.pt" "$WORK/out" \
      --name "flow_$number" --device "$device" --minutes "${FLOW_MIN:-10}" ${!arguments:-}
    number=$((number + 1))
  done
}

save() {
  local out=${OUT:-$WORK/collected} file; mkdir -p "$out"
  for file in "$WORK"/out/flow_*.pt; do
    # a file that comes back may have 16 MiB
    [ -f "$file" ] && split -b 15m -d "$file" "$out/$(basename "$file")."
  done
  pack_logs "$out/logs.tar.gz"
  ls -l "$out"
}

collect() {
  local pid
  for pid in "$WORK"/flow_*.pid; do await "$(basename "$pid" .pid)" "${PATIENCE_S:-120}"; done
  save; status
}

command=$1; shift
case $command in
  unpack | start | status | collect | save) "$command" "$@" ;;
  wait) sleep "$1"; status ;;
  *) echo "unknown command $command"; exit 2 ;;
esac
