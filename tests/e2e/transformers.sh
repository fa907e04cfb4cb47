#!/bin/bash
# Two transformers that share shapes: the second has other names, other weights and one layer more.
# Prints how many exchange phases each compile scheduled, replayed and refused, with an empty store
# and with one that the other filled. The package is the same either way, and whole phases of the
# longer one are found in what the shorter one left. Layers are compiled one by one, not as a loop.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash" "$1"
[ -x "$bin/ipud-compile" ] || {
    echo "no ipud-compile"
    exit 77
}
models=$here/../models
python3 "$models/generate.py" vit-small --layers 2 >"$work/two.json"
python3 "$models/generate.py" vit-small --layers 3 --prefix other. --first-seed 1000 >"$work/three.json"

# compile NAME STORE: prints the counts, leaves the report in $report
compile() {
    local id
    printf '{"model":%s,"options":{"tiles":64,"cache":"refresh","run":false,"repeat":"off"}}' \
        "$(<"$work/$1.json")" >"$work/job"
    id=$(submit @"$work/job" | field 'd["id"]')
    for _ in 1 2 3 4 5; do
        report=$(api "/v1/jobs/$id?wait=60s")
        [ "$(field 'd["terminal"]' <<<"$report")" = true ] && break
    done
    is "$1, $2" succeeded "$(field 'd["state"]' <<<"$report")"
    echo "$1 layers, $2: phases $(of exchange_phases), scheduled $(count scheduled)," \
        "replayed $(count replayed), refused $(count refused)"
}

of() {
    field "d[\"report\"][\"compile\"][\"summary\"][\"$1\"]" <<<"$report"
}

count() {
    field "d[\"report\"][\"compile\"][\"summary\"][\"schedules\"][\"$1\"]" <<<"$report"
}

# Bytes of exchange rows on the fullest tile.
table() {
    local id
    id=$(field 'd["id"]' <<<"$report")
    api "/v1/jobs/$id/events?follow=1" |
        sed -n 's/.*"exchange_table_bytes": *\([0-9]*\).*/\1/p' | head -n 1
}

digest() {
    field 'd["report"]["compile"]["digest"]' <<<"$report"
}

start
compile three "empty store"
wanted=$(digest)
alone=$(count scheduled)
is "nothing replayed from an empty store" 0 "$(count replayed)"
stop
rm -r "$work/state"
start
compile two "empty store"
bytes=$(table)
phases=$(of exchange_phases)
compile three "store filled by two layers"
is "one digest whatever the store" "$wanted" "$(digest)"
is "the second finds most of its phases" true \
    "$([ "$(count replayed)" -gt "$((alone / 2))" ] && echo true)"
echo "exchange rows: $bytes bytes for $phases phases, $(table) for $(of exchange_phases)"
is "rows of equal layers are stored once" true \
    "$([ $(($(table) * phases)) -lt $((bytes * $(of exchange_phases) * 9 / 10)) ] && echo true)"
compile three "store filled by itself"
is "one digest from its own store" "$wanted" "$(digest)"
is "nothing is left to schedule" 0 "$(count scheduled)"
stop
finish
