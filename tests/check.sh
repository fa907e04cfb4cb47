#!/bin/bash
# Runs the whole test suite over what `make check` has built and closes with one line of totals.
# Usage: tests/check.sh BUILD
set -u
build=$1
cd "$(dirname "$0")/.." || exit 2
asan=$build/asan
logs=$build/logs
mkdir -p "$logs"
passed=0
failed=0
skipped=0
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

# run NAME LIMIT_SECONDS COMMAND...: exit status 77 counts as skipped.
run() {
    local name=$1 limit=$2 start=$SECONDS status=0
    shift 2
    timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null || status=$?
    local took=$((SECONDS - start))
    case $status in
    0)
        passed=$((passed + 1))
        printf 'ok    %-28s %4d s\n' "$name" "$took"
        ;;
    77)
        skipped=$((skipped + 1))
        printf 'skip  %-28s %s\n' "$name" "$(tail -n 1 "$logs/$name.log")"
        ;;
    *)
        failed=$((failed + 1))
        printf 'FAIL  %-28s status %d after %d s\n' "$name" "$status" "$took"
        tail -n 30 "$logs/$name.log"
        ;;
    esac
}

run arch 60 tests/arch/check.sh "$asan"
for test in "$asan"/tests/unit/test_*; do
    case $test in *.o | *.d) continue ;; esac
    run "$(basename "$test")" 600 "$test"
done
run vectors-isa 300 "$asan/tests/vectors" isa tests/vectors/isa-vectors.jsonl
run vectors-exchange 300 "$asan/tests/vectors" exchange tests/vectors/exchange-vectors.json
run oracle 300 tests/oracle/run.sh "$asan" 1 20
for target in "$asan"/tests/fuzz/fuzz_*; do
    case $target in *.o | *.d) continue ;; esac
    name=$(basename "$target")
    run "$name" 120 "$target" "tests/fuzz/corpus/${name#fuzz_}"
done
run diff-random 1800 "$asan/tests/diff/diff" --count 100
run diff-repeated 900 "$asan/tests/diff/diff" --repeated --count 40
run diff-f16 900 "$asan/tests/diff/diff" --f16 --count 40
run diff-f16-vit 600 "$asan/tests/diff/diff" --f16 --model tests/models/vit-small/model.json --tiles 64
run diff-f16-stream 900 "$asan/tests/diff/diff" --f16 --model tests/models/gemm-stream/model.json --tiles 24
run diff-all 1800 "$asan/tests/diff/diff" --all --count 200
run diff-rows 300 "$asan/tests/diff/diff" --model tests/golden/rows/model.json --tiles 16
for model in tests/models/found/*.json; do # each was once compiled wrongly
    for tiles in 1 3; do
        run "diff-$(basename "$model" .json)-$tiles" 300 "$asan/tests/diff/diff" --model "$model" \
            --tiles $tiles
    done
done
run diff-vit 600 "$asan/tests/diff/diff" --model tests/models/vit-small/model.json --tiles 64
for test in "$build"/tsan/tests/unit/test_*; do
    case $test in *.o | *.d) continue ;; esac
    [ -e "$test" ] && run "tsan-$(basename "$test")" 600 "$test"
done
for script in tests/e2e/*.sh; do
    [ -e "$script" ] && run "e2e-$(basename "$script" .sh)" 900 "$script" "$asan"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
