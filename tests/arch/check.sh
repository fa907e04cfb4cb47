#!/bin/bash
# Checks what the build cannot: include arrows between modules (tests/arch/arrows.txt), file
# sizes, writable globals of the library, and words that have no place in the tree.
# Usage: tests/arch/check.sh BUILD/VARIANT
set -u
build=$1
cd "$(dirname "$0")/../.." || exit 2
failed=0
fail() {
    echo "arch: $*"
    failed=1
}

declare -A allowed
while IFS=: read -r module others; do
    case $module in '' | '#'*) continue ;; esac
    allowed[$module]=" $others base $module "
done <tests/arch/arrows.txt

for file in src/*/*.[ch] src/*/*.def proto/*.[ch] daemon/*.[ch] client/*.[ch]; do
    [ -e "$file" ] || continue
    module=${file%/*}
    module=${module#src/}
    while read -r included; do
        [ -d "src/$included" ] || [ "$included" = proto ] || continue
        case ${allowed[$module]-} in
        *" $included "*) ;;
        *) fail "$file includes from $included, which arrows.txt does not allow" ;;
        esac
    done < <(sed -nE 's/^#include "([a-z]+)\/[^"]+".*/\1/p' "$file" | sort -u)
done

# Family headers stay inside their module (seam.h and base's headers are public).
while IFS=: read -r file included; do
    module=${included%%/*}
    case $file in "src/$module/"* | "$module/"*) ;; *) fail "$file includes $included of another module" ;; esac
done < <(grep -noE '#include "[a-z]+/[a-z_]+_internal\.h"' src/*/*.[ch] daemon/*.[ch] client/*.[ch] \
    2>/dev/null | sed -E 's/:[0-9]+:#include "([^"]+)"/:\1/')

for file in src/*/*.c daemon/*.c client/*.c proto/*.c; do
    [ -e "$file" ] || continue
    lines=$(wc -l <"$file")
    [ "$lines" -le 1000 ] || fail "$file has $lines lines, at most 1000"
done

# .clang-format's ColumnLimit, which it does not hold comments and assembly to.
if LC_ALL=C.UTF-8 grep -nE '^.{101,}' src/*/*.[chS] daemon/*.[ch] client/*.[ch] proto/*.[ch]; then
    fail "the lines above have more than 100 columns"
fi

# R5: no writable globals in src/ but the log's. Tables of pointers lie in .data.rel.ro, which the
# loader makes read-only; sanitizers keep their own.
for library in "$build"/lib/*.a; do
    [ -e "$library" ] || continue
    found=$(objdump -t "$library" 2>/dev/null | awk '
        /^[a-z_0-9]+\.o:/ { object = $1 }
        / O (\.data|\.bss|\.data\.[a-z_]+|\.bss\.[a-zA-Z_]+)\t/ && !/\.data\.rel/ && !/asan|odr|ubsan|tsan|\.L/ && object !~ /^log\.o/ {
            print object, $NF }' | head -n 3)
    [ -z "$found" ] || fail "writable globals in $(basename "$library"): $found"
done

if grep -nE '\b(TODO|FIXME|XXX)\b' src/*/*.[chS] daemon/*.[ch] client/*.[ch] proto/*.[ch] 2>/dev/null |
    grep -v XXXXXX | grep .; then
    fail "unfinished work is marked in the lines above"
fi
top=$(git ls-files 2>/dev/null | grep -v '^\.' | cut -d/ -f1 | sort -u | tr '\n' ' ')
[ -z "$top" ] || [ "$top" = "Makefile README.md client daemon packaging proto src systemd tests " ] ||
    fail "top level holds: $top"
[ $failed = 0 ] && echo "arch: ok"
exit $failed
