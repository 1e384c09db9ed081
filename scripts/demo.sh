#!/bin/sh
# The main job on an embedded default: a model over a corpus; then what a call costs, and a day of both shifts.
set -e
if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
say() { printf '\n%s\n$ %s\n' "$bold$1$plain" "$2"; }
run() { say "$1" "twoshift $2"; "$BIN/twoshift" $2; }
rm -rf demo-out
mkdir -p demo-out
"$BIN/python" scripts/demo_corpus.py > demo-out/docs.jsonl
run "1. A job: this repository's documentation to vectors, committed shard by shard" \
    "run demo-out/docs.jsonl --model minilm --text body --keep id,file --price 0.90 -o demo-out/vectors"
run "2. The same command again: there is nothing left to do" \
    "run demo-out/docs.jsonl --model minilm --text body --keep id,file --price 0.90 -o demo-out/vectors"
run "3. The same model, online and offline: 6 ms a call and 0.18 ms an item" \
    "plan cost --overhead-ms 6 --item-ms 0.18 --batch 1 --batch 512 --price 3.00 --price 0.90 --slo-ms 50"
run "4. Where larger batches stop paying, and why online cannot go there" \
    "plan sweep --overhead-ms 6 --item-ms 0.18 --slo-ms 50"
run "5. One device at 30 % live load: what is left for batch work" \
    "sim lanes --load 0.3 --background --max-batch 128 --compare --seconds 20"
run "6. A day: one fleet for both shifts against two fleets" \
    "sim day --peak 20000 --batch-items 400M --price 2.50 --report demo-out/day.html"
printf '\nOpen demo-out/vectors/_twoshift/report.html and demo-out/day.html for the charts.\n'
