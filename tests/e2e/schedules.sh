#!/bin/bash
# Stored schedules and residency through the daemon: one digest with an empty, warm, damaged and
# foreign-filled store; other weights are loaded, the same are not; the compiler's id is that of its
# sources, in whatever folder they are built.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash" "$1"
[ -x "$bin/ipud-compile" ] || {
    echo "no ipud-compile"
    exit 77
}

# net WIDTH SEED: x -> Gemm -> Relu -> Gemm -> Softmax, spread over tiles
net() {
    local w='"dtype":"float16","generator":{"kind":"uniform","scale":0.1,"seed":'
    printf '"model":{"inputs":[{"name":"x","dtype":"float16","shape":[20,256],"generator":{"kind":"uniform","seed":1}}],
      "initializers":[{"name":"a","shape":[256,%s],%s%s}},{"name":"b","shape":[%s,64],%s3}}],
      "nodes":[{"op_type":"Gemm","inputs":["x","a"],"outputs":["h"]},
               {"op_type":"Relu","inputs":["h"],"outputs":["r"]},
               {"op_type":"Gemm","inputs":["r","b"],"outputs":["z"]},
               {"op_type":"Softmax","inputs":["z"],"outputs":["y"]}],"outputs":["y"]}' \
        "$1" "$w" "$2" "$1" "$w"
}

# job MODEL OPTIONS: its document once it has ended
job() {
    local id r
    id=$(submit "{$1,\"options\":{\"tiles\":16$2}}" | field 'd["id"]')
    for _ in 1 2 3; do
        r=$(api "/v1/jobs/$id?wait=60s")
        [ "$(field 'd["terminal"]' <<<"$r")" = true ] && break
    done
    is "job" succeeded "$(field 'd["state"]' <<<"$r")"
    echo "$r"
}

digest() {
    field 'd["report"]["compile"]["digest"]'
}

# of REPORT NAME: a count of the compile's summary
count() {
    field "d[\"report\"][\"compile\"][\"summary\"][\"schedules\"][\"$2\"]" <<<"$1"
}

refresh=',"cache":"refresh","run":false'
a=$(net 192 2)
b=$(net 160 2)

# ---- empty, then warm
start
r=$(job "$a" ',"run":false')
wanted=$(digest <<<"$r")
made=$(count "$r" scheduled)
is "an empty store gives nothing" 0 "$(count "$r" replayed)"
is "there is something to store" true "$([ "$made" -gt 0 ] && echo true)"
r=$(job "$a" "$refresh")
is "digest, warm" "$wanted" "$(digest <<<"$r")"
is "all read" "0 $made" "$(count "$r" scheduled) $(count "$r" replayed)"
id=$(field 'd["id"]' <<<"$r")
has "reuse is told" '"event":"exchange.reused"' "$(api "/v1/jobs/$id/events?follow=1")"

# ---- residency: the graph decides on the package, the weights on the load
r=$(job "$a" '')
is "loaded first" true "$(field 'd["report"]["run"]["loaded"]' <<<"$r")"
r=$(job "$a" '')
is "same weights stay" false "$(field 'd["report"]["run"]["loaded"]' <<<"$r")"
r=$(job "$(net 192 9)" '')
is "other weights, same package" "$wanted true" \
    "$(digest <<<"$r") $(field 'd["report"]["compile"]["cache"]["hit"]' <<<"$r")"
is "other weights are loaded" true "$(field 'd["report"]["run"]["loaded"]' <<<"$r")"
r=$(job "$a" '')
is "the first weights are loaded again" true "$(field 'd["report"]["run"]["loaded"]' <<<"$r")"
stop

# ---- damaged: dropped, made anew
printf 'no database at all, but as long as a header of one would be ........' \
    >"$work/state/schedules.sqlite3"
start
r=$(job "$a" "$refresh")
is "digest, damaged" "$wanted" "$(digest <<<"$r")"
is "nothing to read" "$made 0" "$(count "$r" scheduled) $(count "$r" replayed)"
r=$(job "$a" "$refresh")
is "stored again" "0 $made" "$(count "$r" scheduled) $(count "$r" replayed)"
stop

# ---- filled by another model first
rm -r "$work/state"
start
job "$b" ',"run":false' >/dev/null
r=$(job "$a" ',"run":false')
is "digest, foreign" "$wanted" "$(digest <<<"$r")"
stop

# ---- the compiler's id
top=$(cd "$here/../.." && pwd)
mkdir "$work/other"
cp -r "$top/src" "$top/Makefile" "$work/other"
make -s -C "$top" BUILD="$work/b1" VARIANT=release "$work/b1/release/gen/compiler_id.h" >/dev/null
make -s -C "$work/other" BUILD="$work/b2" VARIANT=debug "$work/b2/debug/gen/compiler_id.h" >/dev/null
is "compiler id" "$(cat "$work/b1/release/gen/compiler_id.h")" "$(cat "$work/b2/debug/gen/compiler_id.h")"
has "compiler id" COMPILER_ID "$(cat "$work/b1/release/gen/compiler_id.h")"
finish
