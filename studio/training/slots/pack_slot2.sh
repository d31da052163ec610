#!/bin/bash
# pack_slot2.sh WEIGHTS CORPUS TOKENS... [-- GEN_INDEX...]: prepare .carry/lm for the second lease (corpus_1..5 come from pack_carry.sh).
# WEIGHTS: folder with speech_tokenizer.pt, speaker_encoder.pt, hift.pt, hift_judges.pt of the first lease.
# TOKENS: FILE or FILE@RATIO as `lm_data --tokens` takes them ("-" for made-up ones); GEN_INDEX: index files of more speech.
# WORDS=FILE keeps the words of clips between calls: aligning them with the teacher's phonemes takes minutes.
set -euo pipefail
weights=$1 corpus=$2; shift 2
tokens=() indexes=("$corpus/index.jsonl.gz")
while [ $# -gt 0 ] && [ "$1" != -- ]; do tokens+=("$1"); shift; done
[ $# -gt 0 ] && { shift; indexes+=("$@"); }
carry=${CARRY:-.carry}/lm; rm -rf "$carry"; mkdir -p "$carry"
for name in speech_tokenizer speaker_encoder hift hift_judges; do
  if [ -f "$weights/$name.pt" ]; then cp "$weights/$name.pt" "$carry/"; fi
done
${PYTHON:-python3} -m studio.training.lm_data "$carry/lm_data.npz" --index "${indexes[@]}" --tokens "${tokens[@]}" --limit "${LIMIT:-0}" ${WORDS:+--words "$WORDS"}
du -sh "$carry"/*
