#!/bin/bash
# pack_carry.sh CORPUS [CARRY]: prepare what travels to the GPU machine, in folders that fit one call each (64 MiB with the tree).
# CORPUS: folder with data_NNN.zip, index.jsonl.gz, speakers.json. Writes CARRY/corpus_1 .. corpus_5 (default .carry).
set -euo pipefail
corpus=$1 carry=${2:-.carry}
part=0 count=3
for zip in "$corpus"/data_*.zip; do
  if [ "$count" -ge 2 ]; then part=$((part + 1)); count=0; rm -rf "$carry/corpus_$part"; mkdir -p "$carry/corpus_$part"; fi
  cp "$zip" "$carry/corpus_$part/"; count=$((count + 1))
done
cp "$corpus/speakers.json" "$carry/corpus_1/"
# what the machine does not read stays here
python3 - "$corpus/index.jsonl.gz" "$carry/corpus_1/index.jsonl.gz" <<'PYTHON'
import gzip, json, sys
with gzip.open(sys.argv[1], "rt", encoding="utf8") as lines, gzip.open(sys.argv[2], "wt", encoding="utf8") as out:
    for line in lines:
        entry = json.loads(line)
        entry.pop("phonemes", None), entry.pop("pinyin", None)
        out.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n")
PYTHON
# soundfile reads Opus; the machine has numpy but neither soundfile nor cffi
pip=${PIP:-python3 -m pip}
$pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform any \
  -d "$carry/corpus_1/whl" soundfile==0.14.0 cffi==2.0.0 pycparser==2.23
du -sh "$carry"/*
