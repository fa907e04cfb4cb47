#!/bin/bash
# Runs every libFuzzer target for some seconds on a scratch copy of its corpus and prints one table:
# seconds of wall clock and of processor, inputs executed, edges and features covered, files in the
# corpus that the run has grown. A finding is copied to the current folder; it becomes a file under
# tests/fuzz/corpus once it is mended.
# A hang counts from 20 minutes, because wall clock says little on a busy machine; the table's
# column of the slowest input says more.
# Usage: tests/fuzz/run.sh BUILD/fuzz SECONDS [JOBS [TARGET...]]
# FUZZ_GROWN=FOLDER keeps the grown corpora there, and the next run begins with them.
set -u
build=$1
seconds=$2
jobs=${3:-1}
shift $(($# < 3 ? $# : 3))
corpus=$(cd "$(dirname "$0")" && pwd)/corpus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
TIMEFORMAT='%U %S %R'

# one TARGET: runs it and leaves a row of the table.
one() {
    local name=$1 dir=$scratch/$1 status=ok code=0
    local grown=${FUZZ_GROWN:-$scratch/grown}/$1
    mkdir -p "$grown" "$dir/found"
    { time "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -max_len=65536 -timeout=1200 \
        -report_slow_units=1200 \
        -rss_limit_mb=2048 -print_final_stats=1 -verbosity=1 -artifact_prefix="$dir/found/" \
        "$grown" "$corpus/$name" >"$dir/log" 2>&1; } 2>"$dir/time" || code=$?
    case $code in
    0) ;;
    72) status=ended ;; # a signal from outside, no finding
    *)
        status=FOUND
        tail -n 60 "$dir/log" >"$dir/failed"
        cp "$dir"/found/* . 2>/dev/null
        ;;
    esac
    read -r user system wall <"$dir/time"
    awk -v name="$name" -v status=$status -v cpu="$(echo "$user + $system" | bc)" -v wall="$wall" \
        '/cov: / { for (i = 1; i < NF; i++) { if ($i == "cov:") cov = $(i + 1);
                                               if ($i == "ft:") ft = $(i + 1);
                                               if ($i == "corp:") corp = $(i + 1) } }
         /stat::number_of_executed_units/ { units = $2 }
         /stat::slowest_unit_time_sec/ { slowest = $2 }
         /stat::peak_rss_mb/ { rss = $2 }
         END { sub(/\/.*/, "", corp)
               printf "%-12s %-6s %7.0f %7.1f %11d %9.0f %6d %7d %7d %6d %9d\n", name, status,
                      wall, cpu, units, (cpu + 0 > 0 ? units / cpu : 0), cov, ft, corp, rss,
                      slowest }' \
        "$dir/log" >"$dir/row"
}

targets=$*
if [ -z "$targets" ]; then
    for target in "$build"/tests/fuzz/fuzz_*; do
        case $target in *.o | *.d) ;; *) targets="$targets ${target##*/fuzz_}" ;; esac
    done
fi
for name in $targets; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
    done
    one "$name" &
done
wait
printf '%-12s %-6s %7s %7s %11s %9s %6s %7s %7s %6s %9s\n' target result 'wall s' 'cpu s' \
    executed 'per cpu s' cov ft corpus 'rss MB' 'slowest s'
for name in $targets; do
    cat "$scratch/$name/row"
done
failed=0
for name in $targets; do
    if [ -e "$scratch/$name/failed" ]; then
        failed=1
        echo "== $name"
        cat "$scratch/$name/failed"
    fi
done
exit $failed
