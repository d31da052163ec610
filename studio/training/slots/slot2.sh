#!/bin/bash
# slot2.sh COMMAND: the second lease - speech LM on the first GPU, flow on the last one with the vocoder's polish beside it.
#   start_lm         from .carry/lease2 (lm_data.npz and the weights of slot 1); the LM needs no audio
#   unpack N         put .carry/corpus_N outside the checkout and decode its clips in the background
#   start_audio      start the vocoder's polish at once, and the flow when all PARTS (default 5) parts are decoded
#   wait SECONDS     sleep, then status
#   status           a compact view of logs and figures
#   collect          wait for the trainers, put weights and logs under $OUT (call with `save` at any time for what there is)
# Environment, beside machine.sh's: LM_MIN FLOW_MIN VOC_MIN minutes; LM_ARGS FLOW_ARGS VOC_ARGS more arguments.
set -uo pipefail
source "$(dirname "$0")/machine.sh"
WEIGHTS=$WORK/weights

stage() {
  sync_code; mkdir -p "$WEIGHTS"
  [ -d .carry/lease2 ] && cp -r .carry/lease2/. "$WEIGHTS/"
  return 0
}

start_lm() {
  stage; devices
  # shellcheck disable=SC2086
  trainer lm "${LM_MIN:-14}" studio.training.lm "$WEIGHTS/lm_data.npz" "$WORK/out" --device $FIRST ${LM_ARGS:-}
}

start_audio() {
  devices
  local resume=""; [ -f "$WEIGHTS/hift.pt" ] && resume="--resume $WEIGHTS/hift.pt --judges-from 0"
  # shellcheck disable=SC2086
  trainer vocoder "${VOC_MIN:-13}" studio.training.vocoder "$CACHE" "$CORPUS/speakers.json" "$WORK/out" --device $LAST \
    $resume ${VOC_ARGS:-}
  launch flow bash "$WORK/code/when_decoded.sh" "$CACHE" "${PARTS:-5}" bash "$WORK/code/trainer.sh" studio.training.flow \
    "$CACHE" "$CORPUS/speakers.json" "$WEIGHTS/speech_tokenizer.pt" "$WEIGHTS/speaker_encoder.pt" "$WORK/out" \
    --device $LAST --minutes "${FLOW_MIN:-13}" ${FLOW_ARGS:-}
}

save() {
  local out=${OUT:-$WORK/collected} name; mkdir -p "$out"
  for name in speech_lm flow hift hift_judges; do
    [ -f "$WORK/out/$name.pt" ] || continue
    # a file that comes back may have 16 MiB
    split -b 15m -d "$WORK/out/$name.pt" "$out/$name.pt." && [ -f "$out/$name.pt.01" ] || mv "$out/$name.pt.00" "$out/$name.pt"
  done
  pack_logs "$out/logs.tar.gz"
  ls -l "$out"
}

collect() {
  local name
  for name in lm flow vocoder; do await "$name" "${PATIENCE_S:-120}"; done
  save; status
}

command=$1; shift
case $command in
  start_lm | unpack | start_audio | status | collect | save) "$command" "$@" ;;
  wait) sleep "$1"; status ;;
  *) echo "unknown command $command"; exit 2 ;;
esac
