#!/usr/bin/env bash
# Compiles the native library: native/build.sh PYTHON LIBRARY… PYTHON must have the package ziglang. The name of each
# library contains its architecture, as in _native.aarch64.so. The same sources and compiler produce the same bytes.
set -euo pipefail
python=$1
shift
source=$(dirname "$0")

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export ZIG_GLOBAL_CACHE_DIR=$scratch ZIG_LOCAL_CACHE_DIR=$scratch

for library in "$@"; do
    machine=${library##*/_native.}
    compiler=("$python" -m ziglang cc -target "${machine%.so}-linux-gnu")
    # Compile and link in two steps, because with -nostdlib the compiler finds no headers of the C library. Without
    # -fno-builtin-bcmp, the compiler would call bcmp, which is not in the C standard.
    for name in decoder messages; do
        "${compiler[@]}" -std=c11 -O3 -Wall -Wextra -Werror -fPIC -fno-sanitize=all -fno-builtin-bcmp -g0 \
            -c -o "$scratch/$name.o" "$source/$name.c"
    done
    "${compiler[@]}" -shared -nostdlib -s -o "$scratch/native.so" "$scratch/decoder.o" "$scratch/messages.o"
    # Replace the file instead of overwriting it, because running connectors have mapped the old file into memory.
    mv -f "$scratch/native.so" "$library"
done
