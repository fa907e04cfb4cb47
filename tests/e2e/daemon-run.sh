#!/bin/bash
# Jobs from submit to result by curl: the real compile worker, the simulated device.
. "$(dirname "$0")/lib.bash" "$1"
[ -x "$bin/ipud-compile" ] || {
    echo "no ipud-compile"
    exit 77
}
mul='"model":{"inputs":[{"name":"x","dtype":"float16","shape":[4,16],"generator":{"kind":"uniform","seed":1}}],"initializers":[{"name":"w","dtype":"float16","shape":[16,8],"generator":{"kind":"uniform","seed":2}}],"nodes":[{"op_type":"MatMul","inputs":["x","w"],"outputs":["y"]}],"outputs":["y"]}'
start

# ---- equal submits at once are one compile; each has its check
for n in 1 2 3; do
    submit "{$mul,\"options\":{\"tiles\":4,\"check\":true}}" -o "$work/job$n" &
done
wait $(jobs -p | grep -v "^$pid\$")
hits=0
loads=0
for n in 1 2 3; do
    id=$(field 'd["id"]' <"$work/job$n")
    for _ in 1 2 3; do
        r=$(api "/v1/jobs/$id?wait=60s")
        [ "$(field 'd["terminal"]' <<<"$r")" = true ] && break
    done
    is "job $n" succeeded "$(field 'd["state"]' <<<"$r")"
    is "job $n: check" true "$(field 'd["report"]["check"]["pass"]' <<<"$r")"
    is "job $n: one number a run" 1 "$(field 'len([c for c in d["report"]["run"]["device_cycles"] if c > 0])' <<<"$r")"
    loads=$((loads + $(field 'int(d["report"]["run"]["loaded"])' <<<"$r")))
    hits=$((hits + $(field 'int(d["report"]["compile"]["cache"]["hit"] or d["report"]["compile"]["cache"]["joined"])' <<<"$r")))
done
is "compiled once" 2 "$hits"
is "loaded once" 1 "$loads"
is "one package" 1 "$(api /v1/packages | field 'len(d["items"])')"

# ---- the stream tells it all, in order, and can be taken up anywhere
api "/v1/jobs/$id/events?follow=1" >"$work/events"
has "first line" '"event":"hello"' "$(head -n 1 "$work/events")"
has "last line" '"event":"end"' "$(tail -n 1 "$work/events")"
is "no gap" true "$(python3 -IS -c '
import json, sys
seqs = [e["seq"] for e in map(json.loads, open(sys.argv[1])) if "seq" in e]
print(json.dumps(seqs == list(range(1, len(seqs) + 1))))' "$work/events")"
is "from the middle" 3 "$(api "/v1/jobs/$id/events?from=3" | sed -n 2p | field 'd["seq"]')"
out=$(grep '"event":"output"' "$work/events" | field 'd["fields"]["data"]')

# ---- outputs: raw, npy, tags
is "raw equals the event" "$out" "$(api "/v1/jobs/$id/outputs/y?format=raw" | base64 -w 0)"
is "by ordinal" "$out" "$(api "/v1/jobs/$id/outputs/0?format=raw" | base64 -w 0)"
is "one run" "$out" "$(api "/v1/jobs/$id/outputs/y?run=0&format=raw" | base64 -w 0)"
has "npy" "'shape': (4, 8)" "$(api "/v1/jobs/$id/outputs/y" | head -c 128 | tr '\0' ' ')"
tag=$(api "/v1/jobs/$id/outputs/y" -I | sed -n 's/^ETag: \(.*\)\r$/\1/p')
is "not modified" 304 "$(api "/v1/jobs/$id/outputs/y" -H "If-None-Match: $tag" -o /dev/null -w '%{http_code}')"
is "no such output" 404 "$(api "/v1/jobs/$id/outputs/z" -o /dev/null -w '%{http_code}')"
is "no such run" 404 "$(api "/v1/jobs/$id/outputs/y?run=1" -o /dev/null -w '%{http_code}')"
is "profile" 1 "$(api "/v1/jobs/$id/profile" | field 'len(d["device_cycles"])')"

# ---- three runs of one job; the program stays resident
head -c 384 /dev/zero >"$work/x" # 3 times 4 x 16 halves
d=$(sha256sum "$work/x" | cut -c1-64)
api "/v1/blobs/$d" -T "$work/x" -o /dev/null
j=$(submit "{$mul,\"options\":{\"tiles\":4},\"inputs\":{\"x\":{\"blob\":\"sha256:$d\",\"format\":\"raw\"}}}" | field 'd["id"]')
r=$(api "/v1/jobs/$j?wait=60s")
is "runs" "succeeded 3 false" "$(field 'd["state"]+" %d "%d["report"]["run"]["runs"]+json.dumps(d["report"]["run"]["loaded"])' <<<"$r")"
is "hit" true "$(field 'd["report"]["compile"]["cache"]["hit"]' <<<"$r")"
is "outputs of all runs" 192 "$(api "/v1/jobs/$j/outputs/y?format=raw" | wc -c)"
has "their shape" "(12, 8)" "$(api "/v1/jobs/$j/outputs/y" | head -c 128 | tr '\0' ' ')"

# ---- an input of another length fails with both shapes
head -c 130 /dev/zero >"$work/x"
d=$(sha256sum "$work/x" | cut -c1-64)
api "/v1/blobs/$d" -T "$work/x" -o /dev/null
j=$(submit "{$mul,\"options\":{\"tiles\":4},\"inputs\":{\"x\":{\"blob\":\"sha256:$d\",\"format\":\"raw\"}}}" | field 'd["id"]')
r=$(api "/v1/jobs/$j?wait=60s" | field 'd["state"]+" "+d["error"]["code"]+" "+d["error"]["where"]+" "+d["error"]["detail"]')
has "other length" "failed bad_input /inputs/x" "$r"
has "shape given" "[65]" "$r"
has "shape wanted" "[4,16]" "$r"

# ---- a fault in the model is the job's error, with its place
j=$(submit '{"model":{"inputs":[],"initializers":[],"nodes":[{"op_type":"Foo","inputs":[],"outputs":["y"]}],"outputs":["y"]}}' | field 'd["id"]')
r=$(api "/v1/jobs/$j?wait=60s" | field 'd["state"]+" "+d["error"]["where"]')
has "model fault" "failed /model/nodes/0" "$r"

# ---- export, import by the digest, run by the digest
p=$(api /v1/packages | field 'd["items"][0]["digest"]')
api "/v1/packages/$p/file" -o "$work/package"
api "/v1/packages/$p" -X DELETE -o /dev/null
is "deleted" 404 "$(api "/v1/packages/$p" -o /dev/null -w '%{http_code}')"
is "import" 201 "$(api "/v1/packages/$p" -T "$work/package" -o /dev/null -w '%{http_code}')"
is "imported" true "$(api "/v1/packages/$p" | field 'd["imported"]')"
printf 'junk' | dd of="$work/package" bs=1 seek=110 conv=notrunc 2>/dev/null
is "damaged import" 422 "$(api "/v1/packages/$p" -T "$work/package" -o /dev/null -w '%{http_code}')"
head -c 128 /dev/zero >"$work/x"
head -c 256 /dev/zero >"$work/w"
x=$(sha256sum "$work/x" | cut -c1-64)
w=$(sha256sum "$work/w" | cut -c1-64)
api "/v1/blobs/$x" -T "$work/x" -o /dev/null
api "/v1/blobs/$w" -T "$work/w" -o /dev/null
j=$(submit "{\"package\":\"$p\",\"inputs\":{\"input.0\":{\"blob\":\"sha256:$x\",\"format\":\"raw\"}},\"parameters\":{\"parameter.0\":{\"blob\":\"sha256:$w\",\"format\":\"raw\"}}}" | field 'd["id"]')
r=$(api "/v1/jobs/$j?wait=60s")
is "run by digest" succeeded "$(field 'd["state"]' <<<"$r")"
is "other weights are loaded" true "$(field 'd["report"]["run"]["loaded"]' <<<"$r")"
is "zeros" 0 "$(api "/v1/jobs/$j/outputs/output.0?format=raw" | tr -d '\0' | wc -c)"

# ---- results survive a restart
before=$(api "/v1/jobs/$id/outputs/y" | sha256sum)
stop
start
is "outputs after a restart" "$before" "$(api "/v1/jobs/$id/outputs/y" | sha256sum)"
is "live" 200 "$(api /v1/health/live -o /dev/null -w '%{http_code}')"
is "reset" ready "$(for _ in $(seq 50); do api /v1/health/ready | grep -q true && break; sleep 0.1; done; api /v1/device/reset -X POST | field 'd["state"]')"
stop
finish
