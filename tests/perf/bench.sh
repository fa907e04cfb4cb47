#!/bin/bash
# `make bench`: figures of the simulator and compiler, the table of workloads, then of a daemon: API
# latency, and the time from `ipuctl submit` to the first answer, cold and resident.
# Usage: tests/perf/bench.sh BUILD/release
set -eu
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
"$build/tests/perf/bench"
"$build/tests/perf/exchange-bench"
tests/perf/repeat.sh "$build"

work=$(mktemp -d)
for model in mlp attention so400m gemm; do
    /usr/bin/python3 tests/models/generate.py "$model" >"$work/$model.json"
done
"$build/tests/perf/bench" workloads "$work"
export IPUD_SOCKET=$work/sock
daemon=
trap '[ -z "$daemon" ] || { kill "$daemon"; wait "$daemon" || true; }; rm -rf "$work"' EXIT
"$build/ipud" --device sim --socket "$IPUD_SOCKET" --state-dir "$work/state" --lock "$work/lock" \
    2>"$work/log" &
daemon=$!
for _ in $(seq 300); do
    "$build/ipuctl" health >/dev/null 2>&1 && break
    sleep 0.1
done

echo "daemon:"
for path in /_ping /v1/health/ready /v1/jobs /v1/device; do
    args=()
    for _ in $(seq 200); do args+=(-o /dev/null "http://ipud$path"); done
    curl -s --unix-socket "$IPUD_SOCKET" -w '%{time_total}\n' "${args[@]}" | sort -n |
        awk -v path="$path" '{ t[NR] = $1 * 1e6 } END { printf "  GET %-18s median %5.0f us, 99 %% %5.0f us\n", path, t[int(NR / 2)], t[int(NR * 0.99)] }'
done
/usr/bin/python3 tests/models/digits/images.py "$work"
for name in cold cached-and-resident; do
    started=$(date +%s%N)
    "$build/ipuctl" submit tests/models/digits/model.json --input "pixels=$work/x.npy" -v \
        2>&1 >/dev/null | while read -r line; do
        case $line in *"output of a run"*)
            echo "$(date +%s%N)"
            cat >/dev/null
            ;;
        esac
    done | head -n 1 | awk -v from="$started" -v name="$name" \
        '{ printf "  submit to first answer, %-20s %7.1f ms\n", name, ($1 - from) / 1e6 }'
done
