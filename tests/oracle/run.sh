#!/bin/bash
# Holds the simulator against the oracle. Usage: tests/oracle/run.sh BUILD/VARIANT SEED COUNT [all]
# COUNT random states a form; with `all` also every code of the small formats through every
# conversion and function (minutes), else only the quarters.
set -eu
vectors=$1/tests/vectors
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
/usr/bin/python3 "$here/generate.py" "$2" "$3" >"$work/random.jsonl"
sweep=f8
[ "${4-}" = all ] && sweep=f
/usr/bin/python3 "$here/sweep.py" "$sweep" >"$work/sweep.jsonl"
for file in random sweep; do
    "$vectors" isa "$work/$file.jsonl" >"$work/$file.log" || {
        grep -v ' 0 failed$' "$work/$file.log"
        exit 1
    }
    echo "oracle, $file: $(tail -n 1 "$work/$file.log")"
done
