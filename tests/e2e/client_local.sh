#!/bin/bash
# What needs no daemon: usage, unreachable sockets, assembler round trips, tile runs.
# Usage: tests/e2e/client_local.sh BUILD/VARIANT
# shellcheck source=tests/e2e/client_lib.bash
. "$(dirname "$0")/client_lib.bash"
cd "$work" || exit 2

# ---- usage: status 2, and what is wrong
run 2 'a command is expected' "$ipuctl"
run 2 "'submit' is the nearest" "$ipuctl" sumbit m.json
run 2 "'job show' is the nearest" "$ipuctl" job shwo 1
run 2 'usage: ipuctl submit' "$ipuctl" submit
run 2 'no option' "$ipuctl" device --nonsense
run 2 'needs a value' "$ipuctl" job show 1 --wait
run 2 'json or text' "$ipuctl" device -o yaml
run 2 "no state 'odd'" "$ipuctl" job list --state odd
run 2 'is no job' "$ipuctl" job show ../device
run 2 'is no digest' "$ipuctl" package show 12
run 2 'from 1 to 1472' "$ipuctl" submit "$tests/models/digits/model.json" --tiles 1473
run 2 'NAME=FILE' "$ipuctl" submit "$tests/models/digits/model.json" --output y
run 2 "no output 'y'" "$ipuctl" submit "$tests/models/digits/model.json" --output y=y.npy
run 0 '' "$ipuctl" help
holds out 'Exit status'
run 0 '' "$ipuctl" job events --help
holds out '--follow'
run 0 '' "$ipuctl" completion bash
cp out completion
run 0 '' bash -n completion
is 'the completion script is the table' "$(cmp completion "$tests/../packaging/completion/ipuctl.bash")" ''
page=$tests/../packaging/man/ipuctl.1
"$ipuctl" help | sed -n 's/^  \([a-z][a-z ]*[a-z]\) .*  .*/\1/p' >verbs
while read -r first second _; do
    # shellcheck disable=SC2086
    "$ipuctl" $first $second --help 2>/dev/null | grep -o -- '--[a-z-]*' | sort -u |
        while read -r option; do
            grep -qF -- "${option//-/\\-}" "$page" || echo "$first $second $option"
        done
done <verbs >missing
is 'commands in the help' "$(($(wc -l <verbs) >= 25))" 1
is 'options without a line in the manual page' "$(cat missing)" ''
run 2 "no command 'frob'" "$ipuctl" help frob

# ---- the way to the socket: 3 not reached, 4 not permitted, 2 a path that no socket can have
run 3 'No such file' "$ipuctl" -H "$work/none.sock" device
run 3 "folder '$work/nodir'" "$ipuctl" -H "$work/nodir/s.sock" device
run 3 'is no socket' "$ipuctl" -H unix:///etc/passwd device
run 2 'at most 107' "$ipuctl" -H "/$(printf 'x%.0s' $(seq 107))" device
run 3 'No such file' "$ipuctl" -H "/$(printf 'x%.0s' $(seq 106))" device
run 2 'is empty' "$ipuctl" -H '' device
run 3 '' "$ipuctl" doctor
holds out 'fail  socket'
run 3 '' "$ipuctl" version
holds out 'client.version'
/usr/bin/python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])' "$work/dead.sock"
run 3 'nobody listens' "$ipuctl" -H "$work/dead.sock" device
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    nobody=(setpriv --reuid=65533 --regid=65533 --clear-groups)
    mkdir -m 0750 locked
    cp "$ipuctl" "$work/ipuctl" && chmod 0755 "$work/ipuctl"
    run 4 'is not in that group, this process has it not' \
        "${nobody[@]}" "$work/ipuctl" -H "$work/locked/s.sock" device
    chmod 0660 dead.sock
    run 4 'permission denied on socket' "${nobody[@]}" "$work/ipuctl" -H "$work/dead.sock" device
    chmod 0600 dead.sock
    run 4 'this process has it; the mode keeps the group out' \
        setpriv --reuid=65533 --regid=0 --clear-groups "$work/ipuctl" -H "$work/dead.sock" device
fi

# ---- local files: 13, malformed text: its place
run 13 'No such file' "$ipuctl" submit none.json
printf '{"inputs": [],\n  "nodes": oops}\n' >broken.json
run 2 'broken.json:2:' "$ipuctl" submit broken.json
printf '{"a": 1, "a": 2}' >twice.json
run 2 'twice.json:1:' "$ipuctl" submit twice.json
printf '[%.0s' $(seq 100) >deep.json
run 2 'nested deeper than 64' "$ipuctl" submit deep.json
if [ -w /dev/full ]; then
    run 13 'No space left' bash -c '"$0" help >/dev/full' "$ipuctl"
fi
{ sleep 0.3; "$ipuctl" help 2>err; echo $? >status; } | :
is 'status after a closed pipe' "$(cat status)" 141

# ---- asm and disasm: text -> words -> text -> words
cat >code.S <<'S'
.globl start
start:
    setzi $m0, 5
    add $m1, $m0, 7
    brnz $m1, start
    ld32 $m2, $m3, $m15, 4
    exitz $mzero
S
run 0 '' "$ipuctl" asm code.S --worker -o code.bin
run 0 '' "$ipuctl" disasm code.bin --worker
cp out listing
sed -E 's/^[0-9a-f]{8}  [0-9a-f ]{17}  //' listing >again.S
run 0 '' "$ipuctl" asm again.S --worker -o again.bin
run 0 '' cmp code.bin again.bin
run 0 '' "$ipuctl" disasm --worker 19000005 0x22010007
holds out 'setzi $m0, 5'
holds out 'add $m1, $m0, 7'
run 0 '' "$ipuctl" disasm --addr 0x50000 ffffffff
holds out '.long 0xffffffff'
run 2 'neither a file nor a hexadecimal word' "$ipuctl" disasm 1g
printf 'start:\n    setzi $m0, 5\n    frob $m1\n' >bad.S
run 9 'bad.S:3:' "$ipuctl" asm bad.S
run 2 'no multiple of 4' "$ipuctl" asm code.S --addr 0x4c011
run 13 'No such file' "$ipuctl" asm none.S
run 13 '' "$ipuctl" asm code.S --worker -o nodir/x.bin
printf '.if SIZE > 3\n setzi $m0, SIZE\n.endif\n' >def.S
run 0 '' "$ipuctl" asm def.S -D SIZE=9
holds out 'setzi $m0, 9'

# ---- one tile
if [ -x "$build/ipu-tile-run" ]; then
    run 11 '' "$ipuctl" tile run code.S --worker --entry start --cycles 1000
    holds out 'stopped at the limit of 1000 cycles'
    printf '.globl f\nf:\n add $m1, $m0, 7\n st32 $m1, $m4, $m15, 0\n exitz $mzero\n' >add.S
    run 0 '' "$build/ipu-tile-run" add.S --worker --entry f --reg m0=3 --reg m4=0x60000 \
        --dump 0x60000=1
    holds out '00060000  0000000a'
    printf '.globl f\nf:\n setzi $m0, 1\n ld32 $m1, $mzero, $mzero, 0\n exitz $mzero\n' >fault.S
    run 10 '' "$build/ipu-tile-run" fault.S --worker --entry f
    holds out 'exception INVALID_ADDR in context 1 at 0x4c014 f+0x4'
    run 9 'no global label' "$build/ipu-tile-run" add.S --worker --entry g
    run 2 'm0 to m15' "$build/ipu-tile-run" add.S --worker --reg q1=1
    run 2 'no option' "$build/ipu-tile-run" add.S --frob
    run 9 'bad.S:3:' "$build/ipu-tile-run" bad.S
    printf '\001\002\003\004\005' >five.bin
    run 0 '' "$build/ipu-tile-run" add.S --worker --entry f --reg m0=1 --reg m4=0x60000 \
        --mem 0x70000=five.bin --dump 0x70000=2
    holds out '00070000  04030201 00000005'
    run 2 'beyond tile memory' "$build/ipu-tile-run" add.S --worker --mem 0xe7ffc=five.bin
fi
finish
