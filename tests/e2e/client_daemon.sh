#!/bin/bash
# The client against a real daemon: results, errors with their exit status and place, purity of
# stdout, streams over a restart, Ctrl-C, packages, verbs.
# Usage: tests/e2e/client_daemon.sh BUILD/VARIANT
# shellcheck source=tests/e2e/client_lib.bash
. "$(dirname "$0")/client_lib.bash"
cd "$work" || exit 2
python=/usr/bin/python3

# json FILE EXPRESSION: of the document d; what is no JSON gives a word that no test expects
json() {
    "$python" -IS -c '
import json, sys
try:
    print(eval(sys.argv[2], {"d": json.load(open(sys.argv[1]))}))
except Exception as e:
    print("none:", e)' "$1" "$2"
}

# npy FILE DTYPE ROWS COLUMNS: a file of sixteenths, without other libraries
npy() {
    "$python" -IS -c '
import struct, sys
path, descr, rows, cols = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
head = "{%r: %r, %r: False, %r: (%d, %d), }" % ("descr", descr, "fortran_order", "shape", rows, cols)
head += " " * (63 - (10 + len(head)) % 64) + "\n"
n = rows * cols
code = {"<f2": "e", "<f4": "f"}[descr]
data = struct.pack("<%d%s" % (n, code), *[(i % 33 - 16) / 16 for i in range(n)])
open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)
' "$@"
}

shape() {
    "$python" -IS -c '
import re, sys
print(re.search(rb"\((.*?)\)", open(sys.argv[1], "rb").read(200)).group(1).decode())' "$1"
}

# model FILE OPERATOR [LABEL]: y = x w, [4,16] x [16,8], weights generated or of a file
model() {
    local weights='"generator": {"kind": "uniform", "seed": 7}'
    [ $# -lt 3 ] || weights="\"file\": \"$3\", \"tensor\": \"w\""
    cat >"$1" <<M
{"inputs": [{"name": "x", "dtype": "float16", "shape": [4, 16]}],
 "initializers": [{"name": "w", "dtype": "float16", "shape": [16, 8], $weights}],
 "nodes": [{"op_type": "$2", "inputs": ["x", "w"], "outputs": ["y"]}],
 "outputs": ["y"]}
M
}

npy x.npy '<f2' 4 16
npy x3.npy '<f2' 12 16
npy x5.npy '<f2' 5 16
npy xf4.npy '<f4' 4 16
model m.json MatMul
model op.json Frobnicate
model file.json MatMul w.safetensors
model path.json MatMul ../secret
start_daemon

# ---- a job from file to file
run 0 'succeeded' "$ipuctl" submit m.json --input x=x.npy --output y=y.npy --tiles 8 --check
is 'an id alone on stdout' "$(tr -d '0-9A-Z' <out | wc -c) $(wc -c <out)" '1 27'
is 'shape of the output' "$(shape y.npy)" '4, 8'
run 0 '' "$ipuctl" submit m.json --input x=x3.npy --output y=y3.npy --tiles 8 -o json -q
is 'quiet' "$(cat err)" ''
is 'stdout is one document' "$(json out 'd["state"], d["report"]["run"]["runs"]')" \
    "('succeeded', 3)"
is 'shape of three runs' "$(shape y3.npy)" '12, 8'
run 0 'output of a run' "$ipuctl" submit m.json --input x=x3.npy --tiles 8 -v -o json
is 'pure with -v' "$(json out 'd["report"]["run"]["loaded"]')" False
holds err 'job changed state state="running" from='
run 0 '' "$ipuctl" submit m.json --input x=x.npy --output y=- --tiles 8 -q
cp out stdout.npy
run 0 '' cmp stdout.npy y.npy
run 0 '' bash -c '"$0" submit - --input x=x.npy --tiles 8 -q <m.json' "$ipuctl"
run 0 '' "$ipuctl" submit m.json --tiles 8 --compile-only -o json --cache refresh
is 'compiled again, not run' "$(json out '"run" in d["report"], d["report"]["compile"]["cache"]["hit"]')" \
    '(False, False)'
run 0 '' "$ipuctl" submit m.json --seed 3 --accumulate f32 --input x=x.npy --tiles 8 --name 'a b' \
    --label k=v -o json
is 'name and labels' "$(json out 'd["name"], d["labels"]')" "('a b', {'k': 'v'})"

# ---- what is wrong, and where
run 9 '/nodes/0/op_type' "$ipuctl" submit op.json --input x=x.npy
run 2 '/options/accumulate' "$ipuctl" submit m.json --input x=x.npy --accumulate f8
run 13 "tensor file 'w.safetensors'" "$ipuctl" submit file.json --input x=x.npy
holds err '/initializers/0/file'
run 9 'a label is a plain name' "$ipuctl" submit path.json --input x=x.npy
printf 'nonsense' >w.safetensors
run 9 '(bad_tensor_file)' "$ipuctl" submit file.json --input x=x.npy
run 2 '(bad_input)' "$ipuctl" submit m.json --input x=x5.npy
holds err '[4,16]'
run 2 '(bad_input)' "$ipuctl" submit m.json --input x=xf4.npy
run 2 '(bad_input)' "$ipuctl" submit m.json
run 13 "input 'x'" "$ipuctl" submit m.json --input x=none.npy
run 13 'nodir' "$ipuctl" submit m.json --input x=x.npy --output y=nodir/y.npy --tiles 8
is 'seen before the job' "$(cat out)" ''
run 13 'Is a directory' "$ipuctl" submit m.json --input x=x.npy --output y=. --tiles 8
is 'seen before the job' "$(cat out)" ''
run 2 "/inputs/x: 'x': npy header, byte 0: not an npy file (bad_input)" "$ipuctl" submit m.json \
    --input x=m.json
head -c 200 x.npy >short.npy
run 2 'needs 128 bytes of data, the file has 72' "$ipuctl" submit m.json --input x=short.npy
run 2 'is given twice' "$ipuctl" submit m.json --input x=x.npy --input x=x3.npy
run 2 'integer from 1 to 1472' "$ipuctl" submit m.json --input x=x.npy --tiles 0
run 2 '(bad_input)' "$ipuctl" submit m.json --input x=x5.npy -o json
is 'a failed job is a document too' "$(json out 'd["state"], d["error"]["code"]')" \
    "('failed', 'bad_input')"
run 5 '(not_found)' "$ipuctl" job show 999999
run 5 '(not_found)' "$ipuctl" package show "$(printf 'a%.0s' $(seq 64))"

# ---- verbs of a job
id=$("$ipuctl" submit m.json --input x=x.npy --tiles 8 --hold --detach)
is 'held' "$("$ipuctl" job show "$id" -o json | json /dev/stdin 'd["state"]')" held
run 7 'has not ended' "$ipuctl" job wait "$id" --timeout 300ms
run 7 'has not ended' "$ipuctl" job wait "$id" --timeout 0
run 6 '(conflict)' "$ipuctl" job delete "$id"
run 0 '' "$ipuctl" job cancel "$id"
run 8 '(cancelled)' "$ipuctl" job wait "$id"
run 8 '(cancelled)' "$ipuctl" job wait "$id" --timeout 0
run 0 '' "$ipuctl" job events "$id"
holds out 'job was accepted state="held"'
run 0 '' "$ipuctl" job events "$id" -o json
is 'events are lines of JSON' "$("$python" -IS -c '
import json, sys
print([json.loads(line)["event"] for line in open("out")][-1])')" end
run 0 '' "$ipuctl" job delete "$id"
run 5 '' "$ipuctl" job show "$id"
id=$("$ipuctl" submit m.json --input x=x.npy --tiles 8 --hold --detach)
run 0 '' "$ipuctl" job release "$id"
run 0 'succeeded' "$ipuctl" job wait "$id" --output y=again.npy
run 0 '' cmp y.npy again.npy
run 0 '' "$ipuctl" job outputs "$id"
holds out '[4,8]'
run 0 '' "$ipuctl" job list --limit 2
is 'the two newest' "$(wc -l <out)" 2
run 0 '' "$ipuctl" job list --state failed -o json
is 'failed ones alone' "$(json out 'all(j["state"] == "failed" for j in d["items"]) and len(d["items"]) > 3')" True
run 0 '' "$ipuctl" submit m.json --input x=x.npy --tiles 8 --idempotency-key k1 --detach
cp out first
run 0 '' "$ipuctl" submit m.json --input x=x.npy --tiles 8 --idempotency-key k1 --detach
is 'one job for a key' "$(cat out)" "$(cat first)"
run 2 '(idempotency_mismatch)' "$ipuctl" submit m.json --input x=x.npy --tiles 9 \
    --idempotency-key k1 --detach

# ---- names of others do not drive the terminal
run 0 '' "$ipuctl" submit m.json --input x=x.npy --tiles 8 --name $'\xc2\x9b31m' --detach
run 0 '' "$ipuctl" job list
holds out '\xc2\x9b31m'
run 0 '' "$ipuctl" job list -o json
is 'nothing but ASCII' "$(LC_ALL=C grep -cP '[^\x09\x0a\x20-\x7e]' out)" 0

# ---- packages
run 0 '' "$ipuctl" package list
digest=$(head -n 1 out | cut -f1)
run 0 '' "$ipuctl" package show "$digest"
holds out 'program.tiles'
run 0 '' "$ipuctl" package export "$digest" p.ipuexe
is 'a package file' "$(head -c 15 p.ipuexe)" 'SQLite format 3'
run 0 '' "$ipuctl" package import "$digest" p.ipuexe
{ cat p.ipuexe; printf 'x'; } >p.bad
run 9 'bytes, but' "$ipuctl" package import "$digest" p.bad
printf 'x' >p.bad
run 9 '' "$ipuctl" package import "$digest" p.bad
run 13 '' "$ipuctl" package export "$digest" nodir/p
is 'no half file' "$(ls | grep -c 'ipuexe\.\|npy\.')" 0

# a package damaged in the cache fails one job, which says so, and is compiled anew by the next
touch before
run 0 '' "$ipuctl" submit m.json --input x=x.npy --tiles 5
file=$(find "$work/state/packages" -name '*.ipuexe' -newer before)
chmod u+w "$file"
printf 'x' >"$file"
run 0 '' "$ipuctl" device reset
run 9 'damaged and has been dropped, submit again' "$ipuctl" submit m.json --input x=x.npy --tiles 5
run 0 'compiled, loaded' "$ipuctl" submit m.json --input x=x.npy --tiles 5

# ---- an upload waits for a daemon that is away, when told to
cp x.npy away.npy
printf 'x' >>away.npy
stop_daemon
run 3 '(unreachable)' "$ipuctl" submit m.json --input x=away.npy --tiles 8
run 3 '(unreachable)' "$ipuctl" submit m.json --input x=away.npy --tiles 8 --retry-for 1s
"$ipuctl" submit m.json --input x=away.npy --tiles 8 --hold --detach --retry-for 60s >sent 2>sent.err &
sender=$!
sleep 0.7
start_daemon
wait "$sender"
is 'sent once the daemon is there' "$? $(wc -l <sent)" '0 1'
run 0 '' "$ipuctl" job cancel "$(cat sent)"

# ---- state of device and daemon
for command in device ps version health doctor 'job list' 'package list'; do
    # shellcheck disable=SC2086
    run 0 '' "$ipuctl" $command -o json
    is "$command is JSON" "$(json out 'type(d).__name__ in ("dict", "list")')" True
done
run 0 '' "$ipuctl" doctor
is 'all is well' "$(grep -vc '^ok ' out)" 0
run 0 '' "$ipuctl" device
holds out 'state: ready'
if [ "$(id -u)" = 0 ]; then
    run 0 '' "$ipuctl" device drain --reason 'new card'
    run 6 'new card' "$ipuctl" health
    id=$("$ipuctl" submit m.json --input x=x.npy --tiles 8 --detach)
    sleep 0.3
    run 0 '' "$ipuctl" ps
    holds out 'paused_by_operator'

    # Ctrl-C stops the watching, not the job.
    "$python" -IS -c '
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
p = subprocess.Popen(sys.argv[1:], stderr=open("err", "w"))
for i in range(200):
    time.sleep(0.05)
    if "queued" in open("err").read(): break
p.send_signal(signal.SIGINT)
print(p.wait(20), file=open("status", "w"))' "$ipuctl" job wait "$id"
    is 'status after Ctrl-C' "$(cat status)" 130
    holds err "ipuctl job wait $id"
    is 'the job goes on' "$("$ipuctl" job show "$id" -o json | json /dev/stdin 'd["terminal"]')" False

    # The stream is taken up again over a restart, without a gap and without a repetition.
    "$ipuctl" job events "$id" --follow -o json >stream 2>err &
    watcher=$!
    for _ in $(seq 200); do [ -s stream ] && break; sleep 0.05; done
    stop_daemon
    sleep 0.3
    start_daemon
    run 0 '' "$ipuctl" device resume
    run 0 'succeeded' "$ipuctl" job wait "$id"
    wait "$watcher"
    is 'status of the watcher' $? 0
    is 'every event once' "$("$python" -IS -c '
import json
seq = [e["seq"] for e in map(json.loads, open("stream")) if "seq" in e]
print(seq == list(range(1, len(seq) + 1)) and len(seq) > 5)')" True
    run 0 '' "$ipuctl" device reset --reason test
fi

# ---- a daemon that goes away for good
id=$("$ipuctl" submit m.json --input x=x.npy --tiles 8 --hold --detach)
"$ipuctl" job wait "$id" --retry-for 1s >out 2>err &
watcher=$!
for _ in $(seq 200); do grep -q held err && break; sleep 0.05; done
stop_daemon KILL
wait "$watcher"
is 'status without a daemon' $? 3
run 3 '' "$ipuctl" submit m.json --input x=x.npy --idempotency-key auto --retry-for 1s

# ---- answers that are no problem documents, and streams that lie
fake() {
    "$python" -IS -c '
import os, socket, sys
path, answer = sys.argv[1], sys.argv[2].encode().decode("unicode_escape").encode("latin1")
if os.path.exists(path): os.unlink(path)
s = socket.socket(socket.AF_UNIX)
s.bind(path); s.listen(8); open(path + ".up", "w").close()
s.settimeout(20)
for i in range(int(sys.argv[3])):
    c, _ = s.accept(); c.recv(65536); c.sendall(answer); c.close()' "$work/f.sock" "$1" "${2:-1}" &
    server=$!
    for _ in $(seq 100); do [ -e "$work/f.sock.up" ] && break; sleep 0.05; done
}
answered() {
    local status=$1 words=$2 bytes=$3
    shift 3
    rm -f "$work/f.sock.up"
    fake "$bytes"
    run "$status" "$words" "$ipuctl" -H "$work/f.sock" "$@"
    kill "$server" 2>/dev/null
    wait "$server" 2>/dev/null
}
html='Content-Type: text/html\r\nConnection: close\r\n\r\n<html>no</html>'
answered 2 'status 413' "HTTP/1.1 413 Too Large\r\n$html" device
answered 12 'status 500' "HTTP/1.1 500 Oops\r\n$html" device
answered 6 'status 503' "HTTP/1.1 503 Later\r\n$html" device
answered 12 'no JSON' "HTTP/1.1 200 OK\r\n$html" device
answered 12 'empty answer' 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n' device
answered 12 'status 302' 'HTTP/1.1 302 Go\r\nLocation: http://example.org/\r\nContent-Length: 0\r\n\r\n' device
answered 3 '' '' device
answered 12 'an event that is no JSON' 'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfrob\n' job events 1
answered 12 'without a name' 'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"seq": 1}\n' job events 1
answered 4 '\x1b[31m' \
    'HTTP/1.1 403 No\r\nConnection: close\r\n\r\n{"code":"permission","detail":"\\u001b[31mred"}' device
finish
