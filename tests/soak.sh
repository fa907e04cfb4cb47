#!/bin/bash
# The large counts, on the release build: the whole suite with everything poisoned on 1 and 2
# threads, random graphs by the thousand, and the same programs in slices. Two things at a time;
# a table at the end. Meant to end within 60 minutes on 2 cores.
# Usage: tests/soak.sh BUILD/release [SCALE]
#   SCALE  percent of the counts of random graphs, 100 by default
set -u
build=$1
scale=${2:-100}
cd "$(dirname "$0")/.." || exit 2
logs=$(dirname "$build")/logs/soak
rm -rf "$logs"
mkdir -p "$logs"
start=$SECONDS

count() {
    echo $(($1 * scale / 100 > 0 ? $1 * scale / 100 : 1))
}

# run NAME LIMIT_SECONDS COMMAND...: leaves NAME.row; exit status 77 counts as skipped.
run() {
    local name=$1 limit=$2 from=$SECONDS status=0 result
    shift 2
    timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null || status=$?
    case $status in
    0) result=ok ;;
    77) result=skip ;;
    *) result=FAIL ;;
    esac
    printf '%-5s %-32s %5d s  %s\n' "$result" "$name" $((SECONDS - from)) \
        "$(grep -vE '^(patterns|faults):' "$logs/$name.log" | tail -n 1 | cut -c 1-90)" >"$logs/$name.row"
    cat "$logs/$name.row"
}

# two RUN...: starts it beside at most one other.
two() {
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do
        wait -n
    done
    run "$@" &
}

# Random graphs first: they take longest. Ranges of seeds are split so that both cores stay busy.
half=$(count 500)
two diff-same 3000 "$build/tests/diff/diff" --count "$(count 50)" --seed 42 --same
two diff-random-1 3000 "$build/tests/diff/diff" --count "$half" --seed 1000000
two diff-random-2 3000 "$build/tests/diff/diff" --count "$half" --seed $((1000000 + half))
half=$(count 1000)
two diff-all-1 3000 "$build/tests/diff/diff" --all --count "$half" --seed 2000000
two diff-all-2 3000 "$build/tests/diff/diff" --all --count "$half" --seed $((2000000 + half))
two diff-repeated 3000 "$build/tests/diff/diff" --repeated --count "$(count 300)" --seed 1000000
two diff-all-same 3000 "$build/tests/diff/diff" --all --count "$(count 25)" --seed 42 --same
two oracle 1800 tests/oracle/run.sh "$build" 2 200 all
two vectors-isa 600 "$build/tests/vectors" isa tests/vectors/isa-vectors.jsonl
two vectors-exchange 600 "$build/tests/vectors" exchange tests/vectors/exchange-vectors.json
for threads in 1 2; do
    export IPUD_TEST_SIM=poison,threads=$threads
    for test in "$build"/tests/unit/test_*; do
        case $test in *.o | *.d) continue ;; esac
        two "poison-$threads-$(basename "$test")" 900 "$test"
    done
done
wait

rows=$(cat "$logs"/*.row)
echo
echo "$rows"
echo
awk '/ passed, / { for (i = 1; i < NF; i++) if ($(i + 1) ~ /^passed/) p += $i }
     / failed$/ { f += $(NF - 1) } / refused$/ { r += $(NF - 1) }
     END { printf "random graphs: %d passed, %d failed, %d refused by the compiler\n", p, f, r }' \
    "$logs"/diff-*.log
failed=$(grep -c '^FAIL' <<<"$rows")
printf 'soak: %d of %d ok, %d failed, %d skipped, %d min %d s\n' "$(grep -c '^ok' <<<"$rows")" \
    "$(wc -l <<<"$rows")" "$failed" "$(grep -c '^skip' <<<"$rows")" \
    $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60))
[ "$failed" = 0 ]
