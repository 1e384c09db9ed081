#!/bin/sh
# The main job on an embedded default: what a call costs, where batching stops paying, and a day of both shifts.
set -e
if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
say() { printf '\n%s\n$ %s\n' "$bold$1$plain" "$2"; }
run() { say "$1" "twoshift $2"; "$BIN/twoshift" $2; }
mkdir -p demo-out
run "1. The same model, online and offline: 6 ms a call and 0.18 ms an item" \
    "plan cost --overhead-ms 6 --item-ms 0.18 --batch 1 --batch 512 --price 3.00 --price 0.90 --slo-ms 50"
run "2. Where larger batches stop paying, and why online cannot go there" \
    "plan sweep --overhead-ms 6 --item-ms 0.18 --slo-ms 50"
run "3. One device at 30 % live load: what is left for batch work" \
    "sim lanes --load 0.3 --background --max-batch 128 --compare --seconds 20"
run "4. A day: one fleet for both shifts against two fleets" \
    "sim day --peak 20000 --batch-items 400M --price 2.50 --report demo-out/day.html"
printf '\nOpen demo-out/day.html for the charts.\n'
