#!/bin/bash
# Profiles of jobs: the file and the report agree with each other and with the job, for each level
# of sampling; what sampling costs; which run of a stream is kept; errors.
# Usage: tests/e2e/profile.sh BUILD/VARIANT
# shellcheck source=tests/e2e/client_lib.bash
. "$(dirname "$0")/client_lib.bash"
cd "$work" || exit 2
model=$tests/models/vit-small/model.json
python=/usr/bin/python3

# check WHAT WANTED GOT
check() {
    checks=$((checks + 1))
    [ "$2" = "$3" ] || fail "$1: wanted '$2', got '$3'"
}

# ask FILE EXPRESSION: d is the JSON document
ask() {
    "$python" -IS -c '
import json, sys
try:
    print(eval(sys.argv[2], {"d": json.load(open(sys.argv[1]))}))
except Exception as e:
    print("none:", e)' "$1" "$2"
}

# sql EXPRESSION FILE: first value of a query
sql() {
    "$python" -IS -c '
import sqlite3, sys
print(sqlite3.connect(sys.argv[2]).execute(sys.argv[1]).fetchone()[0])' "$1" "$2"
}

start_daemon

for level in off phase kernel; do
    run 0 'hardwareTest=PASS' "$ipuctl" submit "$model" --tiles 64 --profile "$level" --name "$level" --check
    grep -q '^profile=/v1/jobs/.* tiles=[0-9]* samples=[0-9]* bytes=[0-9]*$' err || fail "$level: no profile line"
    grep -q '^referenceMaximumAbsoluteError=0.00[0-9]* numericalTest=PASS$' err || fail "$level: no numeric line"
    grep -q '^package=sha256:[0-9a-f]* tiles=1472 completed=[0-9]* hardwareTest=PASS$' err ||
        fail "$level: no hardware line"
    id=$(cat out)
    run 0 '' "$ipuctl" profile show "$id" -o json
    cp out "$level.json"
    run 0 '' "$ipuctl" profile export "$id" "$level.ipuprof"
    check "$level: level" "$level" "$(ask "$level.json" 'd["level"]')"
    check "$level: run" 0 "$(ask "$level.json" 'd["run"]')"
    check "$level: cycles are the job's" "$(ask "$level.json" 'd["device_cycles"][0]')" \
        "$(ask "$level.json" 'd["cycles"]')"
    check "$level: the path adds up" True \
        "$(ask "$level.json" 'sum(s["cycles"] for s in d["path"]["segments"]) == d["cycles"] == sum(d["path"]["cycles"].values())')"
    check "$level: application" 1768977766 "$(sql 'PRAGMA application_id' "$level.ipuprof")"
    check "$level: rows" "$(ask "$level.json" 'd["samples"]')" \
        "$(sql 'SELECT count(*) FROM sample' "$level.ipuprof")"
    check "$level: last end" "$(ask "$level.json" 'd["cycles"]')" \
        "$(sql 'SELECT max(end_cycle) FROM sample' "$level.ipuprof")"
    check "$level: origin" 0 \
        "$(sql 'SELECT max(start_cycle) FROM sample WHERE idx = 0' "$level.ipuprof")"
    check "$level: samples adjoin" 0 "$(sql '
        SELECT count(*) FROM sample a JOIN sample b ON b.tile = a.tile AND b.idx = a.idx + 1
        WHERE a.end_cycle <> b.start_cycle' "$level.ipuprof")"
    check "$level: tables check" ok "$(sql 'PRAGMA integrity_check' "$level.ipuprof")"
done

# Levels of exchange, kernel calls and operations of the program are all there.
phases=$(ask phase.json 'sum(s["kind"] == "exchange" for s in d["path"]["segments"])')
check 'every phase is sampled' "$phases" "$(sql "SELECT count(DISTINCT level) FROM step WHERE kind = 'exchange'" phase.ipuprof)"
check 'each call alone' 1 "$(sql "
    SELECT max(n) FROM (SELECT count(call.id) n FROM step JOIN call ON call.step = step.id
    WHERE kind = 'compute' GROUP BY step.id)" kernel.ipuprof)"
check 'calls are as many' "$(sql "SELECT count(*) FROM sample JOIN call USING (step)" phase.ipuprof)" \
    "$(sql "SELECT count(*) FROM sample JOIN call USING (step)" kernel.ipuprof)"
check 'predicted within 15 %' True "$(ask phase.json 'abs(d["prediction_error"]) < 0.15')"
check 'each kernel within 15 % of its prediction' '[]' "$(ask kernel.json \
    '[r["name"] for r in d["groups"]["kernel"] if abs(r["prediction_error"]) > 0.15]')"
off=$(ask off.json 'd["cycles"]')
for level in phase kernel; do
    with=$(ask $level.json 'd["cycles"]')
    echo "profile $level: $with cycles, $off without: $((10000 * (with - off) / off)) of 10,000 more"
    check "$level costs less than 2 %" 1 $((with - off < off / 50))
done

# ---- what is shown
for by in kernel operation phase tile kind; do
    run 0 '' "$ipuctl" profile show "$id" --group-by $by --top 3
    grep -q "^by $by" out || fail "no table by $by"
    run 0 '' "$ipuctl" profile show "$id" --group-by $by --top 3 -o json
    check "rows by $by" "['$by'] True" "$(ask out '"%s %s" % (list(d["groups"]), len(d["groups"]["'$by'"]) <= 3)')"
done
run 0 '' "$ipuctl" profile show "$id"
for words in 'critical path: compute' 'useful utilisation' 'longest parts' 'k_'; do
    grep -q "$words" out || fail "profile show has no '$words'"
done
run 2 'group-by' "$ipuctl" profile show "$id" --group-by colour
run 2 'top' "$ipuctl" profile show "$id" --top 0
run 2 'profile' "$ipuctl" submit "$model" --profile all
run 5 '' "$ipuctl" profile show 99
curl -s --unix-socket "$IPUD_SOCKET" "http://x/v1/jobs/$id/profile?format=xml" >body
check 'an unknown format' invalid "$(ask body 'd["code"]')"

# ---- a stream: the first run unless asked
cat >m.json <<'M'
{"inputs": [{"name": "x", "dtype": "float16", "shape": [4, 16]}],
 "initializers": [{"name": "w", "dtype": "float16", "shape": [16, 8],
                   "generator": {"kind": "uniform", "seed": 2}}],
 "nodes": [{"op_type": "MatMul", "inputs": ["x", "w"], "outputs": ["y"]}], "outputs": ["y"]}
M
"$python" -IS -c '
import struct
head = "{%r: %r, %r: False, %r: (12, 16), }" % ("descr", "<f2", "fortran_order", "shape")
head += " " * (63 - (10 + len(head)) % 64) + "\n"
open("x.npy", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + bytes(384))'
for wanted in 0 1 9; do
    run 0 '' "$ipuctl" submit m.json --input x=x.npy --tiles 4 --profile-run $wanted
    run 0 '' "$ipuctl" profile show "$(cat out)" -o json
    check "run $wanted of 3" "$((wanted > 2 ? 2 : wanted)) 3" \
        "$(ask out '"%d %d" % (d["run"], len(d["device_cycles"]))')"
done

# ---- it goes with the job
run 0 '' "$ipuctl" job delete "$id"
run 5 '' "$ipuctl" profile export "$id" gone.ipuprof
[ ! -e gone.ipuprof ] || fail 'a failed export left a file'

stop_daemon
start_daemon --sim-sync-release 300
run 0 '' "$ipuctl" submit "$model" --tiles 64 --profile off
run 0 '' "$ipuctl" profile show "$(cat out)" -o json
slow=$(ask out 'd["cycles"]')
echo "sync_release 300: $slow cycles, $off at the calibrated one"
check 'the release is the simulator'"'"'s' $((120 * phases)) $((slow - off))

echo "$checks checks, $bad failed"
[ "$bad" = 0 ]
