#!/bin/bash
# Programs that go wrong, handed to a daemon as packages: state and code of the job, the
# post-mortem in its events and report, the map of tiles, who may look.
. "$(dirname "$0")/lib.bash" "$1"
faults=$bin/tests/unit/test_faults
[ -x "$faults" ] && [ -x "$bin/ipud-compile" ] || {
    echo "no test_faults or ipud-compile"
    exit 77
}
start
export IPUD_SOCKET=$sock

# fault NAME: imports its package, runs it; the job's document is in $r
fault() {
    digest=$("$faults" --package "$1" "$work/$2.ipuexe")
    is "$1: import" 201 "$(api "/v1/packages/$digest" -T "$work/$2.ipuexe" -o /dev/null -w '%{http_code}')"
    id=$(submit "{\"package\":\"sha256:$digest\",\"limits\":{\"run_ms\":20}}" | field 'd["id"]')
    r=$(api "/v1/jobs/$id?wait=60s")
}

fault "missed sync" sync
is "missed sync: state" failed "$(field 'd["state"]' <<<"$r")"
is "missed sync: code" deadlock "$(field 'd["error"]["code"]' <<<"$r")"
is "missed sync: who" "[5, 7]" "$(field '[(m["tile"], m["sync"]) for m in d["report"]["postmortem"]["missing"]][0]' <<<"$r")"
is "missed sync: the others" "[3, 1471]" "$(field '[d["report"]["postmortem"][k] for k in ("barrier", "arrived")]' <<<"$r")"
has "missed sync: one sentence" "1 did not arrive, first tile 5" "$(field 'd["error"]["detail"]' <<<"$r")"
is "missed sync: event" 1 "$(api "/v1/jobs/$id/events" | grep -c '"event":"device.postmortem"')"
is "missed sync: same in event and report" true "$(api "/v1/jobs/$id/events" |
    grep '"event":"device.postmortem"' | field 'd["fields"]["missing"][0]["symbol"] == "rt_host_out" and d["fields"]["scope"] == "device"')"

fault "width of a transfer" width
is "width: code" tile_fault "$(field 'd["error"]["code"]' <<<"$r")"
is "width: what" '[2, "EXERR", "CONF", "row.0"]' "$(field '[(x["tile"], x["exception"], x["receive_error"], x["phase"]) for x in d["report"]["postmortem"]["exceptions"]][0]' <<<"$r")"
map=$("$bin/ipuctl" tile status)
has "width: on the map" "row  0   ..X. " "$map"
is "width: rows of the map" 23 "$(grep -c '^row ' <<<"$map")"
has "width: its exception" "receive_error CONF" "$map"
has "width: registers" "exception EXERR" "$("$bin/ipuctl" tile regs 2)"

fault "endless loop" loop
is "endless loop: state" timed_out "$(field 'd["state"]' <<<"$r")"
is "endless loop: code" run_timeout "$(field 'd["error"]["code"]' <<<"$r")"
is "endless loop: who" 5 "$(field 'd["report"]["postmortem"]["running"][0]["tile"]' <<<"$r")"
pc=$(field 'd["report"]["postmortem"]["running"][0]["pc"]' <<<"$r")
code=$("$bin/ipuctl" tile disasm 5 "$pc" 1)
has "endless loop: disassembled" "program+0x" "$code"
has "endless loop: the branch" "bri 0x" "$code"

# ---- the device works on, and what is resident can be looked at
ok=$(submit '{"model":{"inputs":[{"name":"x","dtype":"float16","shape":[4,16],"generator":{"kind":"uniform","seed":1}}],"initializers":[{"name":"w","dtype":"float16","shape":[16,8],"generator":{"kind":"uniform","seed":2}}],"nodes":[{"op_type":"MatMul","inputs":["x","w"],"outputs":["y"]}],"outputs":["y"]},"options":{"tiles":4}}' | field 'd["id"]')
r=$(api "/v1/jobs/$ok?wait=60s")
is "after it" succeeded "$(field 'd["state"]' <<<"$r")"
is "nothing to explain" false "$(field '"postmortem" in d["report"]' <<<"$r")"
is "quiet" quiet "$(api /v1/device/tiles | field 'd["verdict"]')"
is "words" 8 "$(api '/v1/device/tiles/0/memory?addr=0x4c010&words=8' | field 'len(d["words"])')"
is "symbol" rt_start "$(api '/v1/device/tiles/0/memory?addr=0x4c010' | field 'd["symbols"][0]["name"]')"
for bad in 1472/memory?addr=0x4c010 0/memory 0/memory?addr=0x4c011 0/memory?addr=0xe7ffc\&words=2 \
    0/memory?addr=0x4c010\&words=1025 x/registers 0/registers?context=7 -1/registers; do
    is "$bad" 400 "$(api "/v1/device/tiles/$bad" -o /dev/null -w '%{http_code}')"
done
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$work"
    chmod 777 "$sock"
    is "others may not look" 403 "$(setpriv --reuid=65533 --regid=65533 --clear-groups curl -sS \
        --unix-socket "$sock" http://ipud/v1/device/tiles -o /dev/null -w '%{http_code}')"
fi

# ---- a look waits for its turn, and not for ever
digest=$("$faults" --package "endless worker" "$work/w.ipuexe")
api "/v1/packages/$digest" -T "$work/w.ipuexe" -o /dev/null
id=$(submit "{\"package\":\"sha256:$digest\",\"limits\":{\"run_ms\":600000}}" | field 'd["id"]')
for _ in $(seq 200); do
    [ "$(api "/v1/jobs/$id" | field 'd["state"]')" = running ] && break
    sleep 0.05
done
is "busy" '503 "device_busy"' "$(api /v1/device/tiles -w '%{http_code}' -o "$work/busy") $(field 'json.dumps(d["code"])' <"$work/busy")"
api "/v1/jobs/$id/cancel" -X POST -o /dev/null
is "cancelled" cancelled "$(api "/v1/jobs/$id?wait=60s" | field 'd["state"]')"
stop
finish
