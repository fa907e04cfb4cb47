#!/bin/bash
# The large counts, on the release build. Usage: tests/soak.sh BUILD/release
set -euo pipefail
build=$1
cd "$(dirname "$0")/.."
"$build/tests/vectors" isa tests/vectors/isa-vectors.jsonl | tail -n 1
"$build/tests/vectors" exchange tests/vectors/exchange-vectors.json | tail -n 1
tests/oracle/run.sh "$build" 2 200 all
"$build/tests/diff/diff" --count 50 --seed 42 --same
"$build/tests/diff/diff" --count 1000 --seed 1000000
