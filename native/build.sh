#!/usr/bin/env bash
# Compiles the native library: native/build.sh PYTHON LIBRARY… with a Python that has ziglang. The name of a library, such as
# _native.aarch64.so, has its architecture. The same sources and compiler give the same bytes.
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
    # Two steps: with -nostdlib, the compiler has no headers of the C library either. Without -fno-builtin-bcmp it would
    # call bcmp, which is not in the C standard.
    for name in decoder messages; do
        "${compiler[@]}" -std=c11 -O3 -Wall -Wextra -Werror -fPIC -fno-sanitize=all -fno-builtin-bcmp -g0 \
            -c -o "$scratch/$name.o" "$source/$name.c"
    done
    "${compiler[@]}" -shared -nostdlib -s -o "$scratch/native.so" "$scratch/decoder.o" "$scratch/messages.o"
    # Running connectors keep the old file, which they have mapped.
    mv -f "$scratch/native.so" "$library"
done
