#!/usr/bin/env bash
# Usage: setup.sh UV_VERSION
# From nothing but Python 3.11 to 3.13: uv into .uv, then exactly what uv.lock names, dev tools included, into .venv.
# Indexes, proxies and certificates are whatever pip and uv are set up with on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
uv_version=$1

python=
for candidate in python3 python3.13 python3.12 python3.11; do
    if python=$("$candidate" -c '
import sys
if not (3, 11) <= sys.version_info[:2] < (3, 14):
    sys.exit(1)
print(sys.executable)' 2>/dev/null); then
        break
    fi
    python=
done
if [ -z "$python" ]; then
    echo "Python 3.11, 3.12 or 3.13 is needed and none is on the PATH (python3 is: $(python3 -V 2>&1 || true))." >&2
    exit 1
fi

uv=.uv/bin/uv
if [ "$("$uv" --version 2>/dev/null | cut -d ' ' -f 2)" != "$uv_version" ]; then
    rm -rf .uv
    # Debian splits ensurepip, which venv needs, into a package of its own.
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        scripts/apt-package.sh "Python's venv module" python3-venv
    fi
    "$python" -m venv .uv
    .uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
fi

# A user whose home cannot be written keeps uv's cache here.
if ! mkdir -p "$("$uv" cache dir)" 2>/dev/null; then
    export UV_CACHE_DIR="$PWD/.uv/cache"
fi

# The Makefile calls .venv/bin/…, so the environment is there whatever UV_PROJECT_ENVIRONMENT or VIRTUAL_ENV say.
unset VIRTUAL_ENV
UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never "$uv" sync --frozen --compile-bytecode --python "$python"
