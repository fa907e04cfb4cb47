# Shared by the daemon's end-to-end tests: a scratch folder, a daemon in it, requests, checks.
# Sourced with the build folder as $1. Not a test itself.
set -u
bin=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d /tmp/ipud-e2e.XXXXXX)
sock=$work/sock
pid=
failures=0
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1

cleanup() {
    [ -n "$pid" ] && kill -9 "$pid" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# is WHAT WANTED GOT
is() {
    [ "$2" = "$3" ] || fail "$1: wanted '$2', got '$3'"
}

# has WHAT PATTERN TEXT
has() {
    case $3 in
    *"$2"*) ;;
    *) fail "$1: no '$2' in '$3'" ;;
    esac
}

# field EXPRESSION: of the JSON on stdin, which is called d
field() {
    python3 -IS -c '
import json, sys
try:
    d = json.load(sys.stdin)
    v = eval(sys.argv[1])
    print(v if isinstance(v, str) else json.dumps(v))
except Exception as e:
    print("no %s: %r" % (sys.argv[1], e))' "$1"
}

# start [OPTION...]: waits until the socket answers
start() {
    "$bin/ipud" --device sim --state-dir "$work/state" --socket "$sock" --lock "$work/lock" \
        "$@" >>"$work/log" 2>&1 &
    pid=$!
    for _ in $(seq 300); do
        [ "$(api /_ping 2>/dev/null)" = OK ] && return
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    fail "daemon did not start"
    tail -n 40 "$work/log"
    exit 1
}

# stop: ends the daemon politely; its exit status must be 0 (a sanitizer's report is not)
stop() {
    kill -TERM "$pid"
    local status=0
    wait "$pid" || status=$?
    pid=
    is "exit of the daemon" 0 $status
    [ $status = 0 ] || tail -n 60 "$work/log"
}

api() {
    local path=$1
    shift
    curl -sS --max-time 60 --unix-socket "$sock" "$@" "http://ipud$path"
}

submit() {
    api /v1/jobs -H 'Content-Type: application/json' -d "$1" "${@:2}"
}

# raw REQUEST: the first line of the answer to bytes sent as they are
raw() {
    python3 -IS -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(10)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode().decode("unicode_escape").encode("latin1"))
data = b""
try:
    while b"\r\n" not in data:
        piece = s.recv(4096)
        if not piece:
            break
        data += piece
except socket.timeout:
    data = b"silence"
print(data.split(b"\r\n")[0].decode("latin1"))' "$sock" "$1"
}

# A compile worker made of shell: a file that holds its body.
worker() {
    printf '#!/bin/bash\n%s\n' "$1" >"$work/worker"
    chmod 755 "$work/worker"
}

finish() {
    if [ $failures -gt 0 ]; then
        echo "$failures failed"
        tail -n 30 "$work/log"
        exit 1
    fi
    echo "all passed"
    exit 0
}
