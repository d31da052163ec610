#!/bin/bash
# slot1.sh COMMAND: the first lease of the GPU machine - speech tokenizer, speaker encoder, vocoder, and the teacher beside them.
#   unpack N         put .carry/corpus_N outside the checkout and decode its clips in the background
#   start            start the trainers (they wait for the first decoded clips)
#   teacher SECONDS  start the teacher on the last GPU (after teacher_a/stage.sh and teacher_b/stage.sh)
#   wait SECONDS     sleep, then status
#   status           a compact view of logs and figures
#   collect          wait for the trainers, tokenise everything, put the results under $OUT
# Environment, beside machine.sh's: TOK_MIN SPK_MIN VAR_MIN VOC_MIN minutes of each trainer (0 leaves it out); PROCS teacher
# processes; TINY=1 for tiny networks; TOKENIZERS names to tokenise with; RATIOS playing speeds to tokenise.
set -uo pipefail
source "$(dirname "$0")/machine.sh"

start() {
  sync_code; devices
  local tok="" spk="" voc="" small="--capacity-tokens 60000 --capacity-clips 900"
  if [ -n "${TINY:-}" ]; then
    tok="--rows 8 --crop-tokens 40 --dim 64 --blocks 2 --report-s 10 $small"
    spk="--rows 16 --crop-tokens 30 --channels 48 --report-s 10 $small"
    voc="--rows 2 --crop-tokens 10 --base 32 --f0-channels 32 --period-width 4 --spectrum-width 4 --report-s 20 $small"
  fi
  local common="$CACHE $CORPUS/speakers.json $WORK/out"
  # shellcheck disable=SC2086
  {
    trainer tokenizer "${TOK_MIN:-6}" studio.training.speech_tokenizer $common --device $FIRST $tok
    trainer variant "${VAR_MIN:-4}" studio.training.speech_tokenizer $common --device $FIRST --name speech_tokenizer_7 \
      --code-dims 7 $tok
    trainer speaker "${SPK_MIN:-4}" studio.training.speaker $common --device $LAST $spk
    trainer vocoder "${VOC_MIN:-8.5}" studio.training.vocoder $common --device $FIRST $voc
  }
}

teacher() {
  devices
  launch teacher bash "$ROOT/teacher/teacher_run.sh" "$ROOT/gen" "$1" "${PROCS:-12}" "${LAST#cuda:}"
}

collect() {
  local out=${OUT:-$WORK/collected} name parts; mkdir -p "$out"; devices
  for name in tokenizer variant speaker; do await "$name" "${PATIENCE_S:-90}"; done
  await teacher "${PATIENCE_S:-90}"
  parts=$(cd "$CACHE" && ls data_*.json.gz | sed 's/.json.gz//')
  if [ -f "$ROOT/gen/index.jsonl.gz" ]; then
    "$PY" -m studio.training.corpus "$ROOT/gen" "$CACHE" --name gen --limit "${LIMIT:-0}" && parts="$parts gen"
    cp "$ROOT/gen/index.jsonl.gz" "$out/gen_index.jsonl.gz"
  fi
  local device=$LAST tokens=$WORK/tokens jobs=()
  for name in ${TOKENIZERS:-speech_tokenizer speech_tokenizer_7}; do
    [ -f "$WORK/out/$name.pt" ] || continue
    # shellcheck disable=SC2086
    "$PY" -m studio.training.encode "$CACHE" "$tokens/$name" --name tokens --parts $parts --device "$device" \
      --tokenizer "$WORK/out/$name.pt" --ratios ${RATIOS:-1.0 0.9 1.1} & jobs+=($!)
    device=$FIRST
  done
  wait "${jobs[@]}"
  for name in "$tokens"/*; do tar cf "$out/tokens_$(basename "$name").tar" -C "$name" .; done
  await vocoder "${VOCODER_PATIENCE_S:-30}"
  tar cf "$out/weights.tar" -C "$WORK/out" $(cd "$WORK/out" && ls sp*.pt)
  [ -f "$WORK/out/hift.pt" ] && tar cf "$out/hift.tar" -C "$WORK/out" hift.pt hift_judges.pt
  pack_logs "$out/logs.tar.gz"
  ls -l "$out"; status
}

command=$1; shift
case $command in
  unpack | start | teacher | status | collect) "$command" "$@" ;;
  wait) sleep "$1"; status ;;
  *) echo "unknown command $command"; exit 2 ;;
esac
