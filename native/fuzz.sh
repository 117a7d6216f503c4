#!/usr/bin/env bash
# Compiles and runs the fuzzer of the native code: native/fuzz.sh PYTHON [OPTION…] INPUT… Uses gcc or clang or, if
# neither works, zig from PYTHON's package ziglang, which has no AddressSanitizer.
set -euo pipefail
python=$1
shift
source=$(dirname "$0")
build=build/fuzz
mkdir -p "$build"

export ZIG_GLOBAL_CACHE_DIR=$build/zig ZIG_LOCAL_CACHE_DIR=$build/zig
compiler=("$python" -m ziglang cc)
sanitizers=undefined
for candidate in gcc clang; do
    if echo 'int main(void) { return 0; }' |
        "$candidate" -fsanitize=address,undefined -x c -o "$build/probe" - 2>"$build/probe.log"; then
        compiler=("$candidate")
        sanitizers=address,undefined
        break
    fi
done
echo "${compiler[*]}, with the sanitizers $sanitizers"
options=(-std=c11 -O2 -g -Wall -Wextra -Werror "-fsanitize=$sanitizers" -fno-sanitize-recover=all)
for name in decoder messages; do
    "${compiler[@]}" "${options[@]}" -fsanitize-coverage=trace-pc \
        -Dmalloc=fuzz_malloc -Dcalloc=fuzz_calloc -Drealloc=fuzz_realloc -Dfree=fuzz_free \
        -c -o "$build/$name.o" "$source/$name.c"
done
"${compiler[@]}" "${options[@]}" -o "$build/fuzz" "$source/fuzz.c" "$build/decoder.o" "$build/messages.o"
exec "$build/fuzz" -f "$build" "$@"
