#!/bin/bash
# What `make run` ends in: starts a daemon on the simulator, classifies the 360 test images of the
# digits set in 45 runs of 8, compares every answer with the reference, and shows what the cache and
# the resident program save. Fails when accuracy, agreement or the cache are not as they must be.
# Usage: tests/models/digits/run.sh BUILD/VARIANT
set -u
build=$(realpath "${1:?usage: run.sh BUILD/VARIANT}") || exit 2
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-/usr/bin/python3}
ipuctl=$build/ipuctl
work=$(mktemp -d "${TMPDIR:-/tmp}/digits.XXXXXX") || exit 2
export IPUD_SOCKET=$work/ipud.sock
daemon=
failed=0

stop_daemon() {
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null
        wait "$daemon" || { echo "  FAIL  the daemon ended with status $?"; failed=1; }
        daemon=
    fi
}
trap 'stop_daemon; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

die() {
    echo "FAIL: $*"
    tail -n 20 "$work/ipud.log" 2>/dev/null
    exit 1
}

# Until jobs are taken and started, at most 60 s.
start_daemon() {
    "$build/ipud" --device sim --socket "$IPUD_SOCKET" --state-dir "$work/state" \
        --lock "$work/lock" >>"$work/ipud.log" 2>&1 &
    daemon=$!
    for _ in $(seq 600); do
        "$ipuctl" health >/dev/null 2>&1 && return 0
        kill -0 "$daemon" 2>/dev/null || die "the daemon has ended"
        sleep 0.1
    done
    die "the daemon is not ready after 60 s"
}

# submit NAME: the job's document in NAME.json, the answers in NAME.npy; answers are counted as
# they come.
submit() {
    local started=$EPOCHREALTIME status
    "$ipuctl" submit "$here/model.json" --name "digits $1" --input "pixels=$work/x.npy" \
        --output "probabilities=$work/$1.npy" --check -v -o json 2>&1 >"$work/$1.json" |
        awk '{ print > log_file }
             / output of a run / { n++; if (n % 9 == 0) {
                 split($1, t, "T"); printf "    %s  %3d answers\n", t[2], 8 * n; fflush() } }
             ' log_file="$work/$1.log"
    status=${PIPESTATUS[0]}
    [ "$status" = 0 ] || { tail -n 5 "$work/$1.log"; die "submit $1 ended with status $status"; }
    awk -v from="$started" -v to="$EPOCHREALTIME" -v name="$1" \
        'BEGIN { printf "    %s submit took %.2f s\n", name, to - from }'
}

# expect NAME WHAT EXPRESSION: over the document NAME.json as `job`, `cache` and `run`.
expect() {
    local name=$1 what=$2 expression=$3
    if "$python" - "$work/$name.json" "$expression" <<'PY'; then
import json, sys
job = json.load(open(sys.argv[1]))
cache, run = job["report"]["compile"]["cache"], job["report"]["run"]
sys.exit(not eval(sys.argv[2]))
PY
        echo "  ok    $what"
    else
        echo "  FAIL  $what"
        failed=1
    fi
}

figures() {
    "$python" - "$work/first.json" "$work/first.npy" "$work/labels.npy" <<'PY'
import json, sys
import numpy as np
job = json.load(open(sys.argv[1]))
got, labels = np.load(sys.argv[2]).astype("f8"), np.load(sys.argv[3])
report = job["report"]
accuracy = float((got.argmax(1) == labels).mean())
check = report["check"]["outputs"][0]
cycles = [c for c in report["run"]["device_cycles"] if c is not None]
per_run = sum(cycles) / len(cycles)
passes = report["compile"]["passes"]
print(f"  images                      {len(labels)} in {report['run']['runs']} runs")
print(f"  accuracy                    {100 * accuracy:.2f} %")
print(f"  labels equal to reference   {100 * check['argmax_equal']:.2f} %")
print(f"  maximum absolute error      {check['max_abs_error']:.6f} (tolerance {check['tolerance']:.6f})")
print(f"  device cycles               {per_run:.0f} a run, {per_run / 8:.0f} an image")
print(f"  compile time                {sum(p['elapsed_ms'] for p in passes):.1f} ms")
for p in passes:
    print(f"    {p['name']:<30}{p['elapsed_ms']:8.1f} ms")
bad = []
if len(labels) != 360 or got.shape != (360, 10) or report["run"]["runs"] != 45:
    bad.append("not 360 images in 45 runs")
if accuracy < 0.95:
    bad.append("accuracy below 95 %")
if check["argmax_equal"] < 0.99:
    bad.append("fewer than 99 % of the labels equal the reference")
print("".join(f"  FAIL  {b}\n" for b in bad), end="")
sys.exit(bool(bad))
PY
}

"$python" "$here/images.py" "$work" || die "the images cannot be made"

echo "first submit: compile, load, run"
start_daemon
submit first
figures || failed=1
answers=$(grep -c ' output of a run ' "$work/first.log")
echo "  answers streamed            $answers events"
[ "$answers" = 45 ] || { echo "  FAIL  not 45 answers"; failed=1; }
expect first "not in the cache, loaded, initialized" \
    'not cache["hit"] and run["loaded"] and run["initialized"]'

echo "second submit, after a restart of the daemon: package from the cache"
stop_daemon
start_daemon
submit second
expect second "cache hit" 'cache["hit"]'
expect second "loaded and initialized again" 'run["loaded"] and run["initialized"]'
grep -q 'finished phase=' "$work/second.log" && { echo "  FAIL  compiled again"; failed=1; }

echo "third submit: program and weights are resident"
submit third
expect third "cache hit" 'cache["hit"]'
expect third "no load, no initialize" 'not run["loaded"] and not run["initialized"]'
grep -qE 'loading application|call="initialize"' "$work/third.log" &&
    { echo "  FAIL  loaded again"; failed=1; }

cmp -s "$work/first.npy" "$work/second.npy" && cmp -s "$work/first.npy" "$work/third.npy" ||
    { echo "  FAIL  the three submits answer differently"; failed=1; }

stop_daemon
if [ "$failed" = 0 ]; then
    echo "digits: ok"
else
    echo "digits: FAILED"
fi
exit "$failed"
