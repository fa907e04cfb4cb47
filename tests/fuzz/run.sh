#!/bin/sh
# Runs every libFuzzer target for some seconds on a scratch copy of its corpus.
# Usage: tests/fuzz/run.sh BUILD/fuzz SECONDS
set -eu
build=$1
seconds=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
for target in "$build"/tests/fuzz/fuzz_*; do
    case $target in *.o | *.d) continue ;; esac
    name=$(basename "$target")
    mkdir -p "$scratch/$name"
    echo "== $name"
    if ! "$target" -max_total_time="$seconds" -max_len=65536 -timeout=10 -print_final_stats=1 \
        -artifact_prefix="$scratch/" "$scratch/$name" "tests/fuzz/corpus/${name#fuzz_}" \
        >"$scratch/$name.log" 2>&1; then
        failed=1
        tail -n 40 "$scratch/$name.log"
        cp "$scratch"/crash-* "$scratch"/timeout-* . 2>/dev/null || true
    fi
    grep -E 'cov:|stat::number_of_executed_units' "$scratch/$name.log" | tail -n 2
done
exit $failed
