#!/bin/bash
# What further equal layers cost: the small vision transformer with 1, 2 and 8 encoder layers on 64
# tiles, as a loop and without one. Prints figures, and fails when the code's size depends on the
# number of layers.
# Usage: tests/perf/repeat.sh BUILD/release
set -eu
build=$(realpath "$1")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# figures LAYERS OPTIONS...: cycles, code bytes, table bytes, least compile seconds (of the
# processor) of seven
figures() {
    local model=$work/vit-$1.json
    shift
    for _ in 1 2 3 4 5 6 7; do
        "$build/tests/diff/diff" --model "$model" --tiles 64 "$@"
    done | sed -n \
        's/.* \([0-9]*\) cycles .* code \([0-9]*\) bytes, tables \([0-9]*\) bytes, compile .* (\([0-9.]*\) s .*/\1 \2 \3 \4/p' | sort -n -k 4 | head -n 1
}

for layers in 1 2 8; do
    tests/models/generate.py vit-small-affine --layers "$layers" >"$work/vit-$layers.json"
done
echo "vit-small on 64 tiles:"
echo "  layers  repeat    cycles  code bytes  table bytes  compile s"
for repeat in auto off; do
    for layers in 1 2 8; do
        read -r cycles code table seconds <<<"$(figures "$layers" --repeat "$repeat")"
        printf '  %6d  %6s  %8d  %10d  %11d  %9.2f\n' \
            "$layers" "$repeat" "$cycles" "$code" "$table" "$seconds"
        echo "$layers $repeat $cycles $code $seconds" >>"$work/table"
    done
done
awk '
    { cycles[$1, $2] = $3; code[$1, $2] = $4; seconds[$1, $2] = $5 }
    END {
        code_ratio = code[8, "auto"] / code[2, "auto"]
        time_ratio = seconds[8, "auto"] / seconds[2, "auto"]
        printf "  a further layer: %d cycles (%d without a loop); 41,871 are published\n",
            (cycles[8, "auto"] - cycles[2, "auto"]) / 6, (cycles[8, "off"] - cycles[2, "off"]) / 6
        printf "  8 layers to 2: code %.2f (at most 1.1), compile %.2f (at most 1.3)\n",
            code_ratio, time_ratio
        exit code_ratio <= 1.1 ? 0 : 1
    }' "$work/table"
