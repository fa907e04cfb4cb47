# Shared by the client's end-to-end tests: a daemon on a scratch socket, counted checks, and an end
# that stops only what was started here. Sourced with BUILD/VARIANT as $1.
set -u
build=$(realpath "${1:?usage: $0 BUILD/VARIANT}") || exit 2
tests=$(cd "$(dirname "$0")/.." && pwd)
ipuctl=$build/ipuctl
work=$(mktemp -d "${TMPDIR:-/tmp}/ipuctl-e2e.XXXXXX") || exit 2
chmod 0755 "$work"
export IPUD_SOCKET=$work/s.sock
daemon=
checks=0
bad=0

stop_daemon() {
    if [ -n "$daemon" ]; then
        kill "-${1:-TERM}" "$daemon" 2>/dev/null
        wait "$daemon" 2>/dev/null
        daemon=
    fi
}
trap 'stop_daemon; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start_daemon() {
    [ -x "$build/ipud" ] || { echo "no ipud in $build"; exit 77; }
    "$build/ipud" --device sim --socket "$IPUD_SOCKET" --state-dir "$work/state" \
        --lock "$work/lock" "$@" >>"$work/ipud.log" 2>&1 &
    daemon=$!
    for _ in $(seq 600); do
        "$ipuctl" health >/dev/null 2>&1 && return 0
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.1
    done
    echo "the daemon is not ready"
    tail -n 20 "$work/ipud.log"
    exit 1
}

fail() {
    echo "FAIL: $*"
    bad=$((bad + 1))
}

# run STATUS WORDS COMMAND...: the exit status, and words that stderr must hold ('' = any).
# stdout stays in $work/out, stderr in $work/err.
run() {
    local want=$1 words=$2 status=0
    shift 2
    checks=$((checks + 1))
    timeout -k 5 120 "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    if [ "$status" != "$want" ]; then
        fail "status $status, not $want: $*"
        tail -n 5 "$work/err"
    elif [ -n "$words" ] && ! grep -qF -- "$words" "$work/err"; then
        fail "stderr has no '$words': $*"
        tail -n 5 "$work/err"
    fi
}

# holds FILE WORDS
holds() {
    checks=$((checks + 1))
    grep -qF -- "$2" "$1" || { fail "no '$2' in $(basename "$1")"; head -n 10 "$1"; }
}

# is WHAT GOT WANT
is() {
    checks=$((checks + 1))
    [ "$2" = "$3" ] || fail "$1: '$2', not '$3'"
}

finish() {
    echo "$(basename "$0" .sh): $checks checks, $bad failed"
    [ "$bad" = 0 ]
    exit
}
