#!/usr/bin/env bash
# From nothing but Python 3.11 to 3.13: uv, as scripts/uv.txt has it, into .uv, then exactly what uv.lock names, dev tools included, into .venv.
# Indexes, proxies and certificates are whatever pip and uv are set up with on this machine. UV_SYSTEM_CERTS is for both.
set -euo pipefail
cd "$(dirname "$0")/.."

# uv's own hint is an option, which make cannot pass on; pip has none.
stop() {
    if [ -z "${UV_SYSTEM_CERTS:-}" ]; then
        echo "If the error above is about a certificate (CERTIFICATE_VERIFY_FAILED, UnknownIssuer): a proxy has certificates of" \
            "its own. Set UV_SYSTEM_CERTS=1 in the environment and run the same command again, with the proxy's authority among" \
            "the system's certificates." >&2
    fi
    exit 1
}

uv_version=$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' scripts/uv.txt)

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
    # Older versions of pip trust only the certificates that they bring.
    if [ -n "${UV_SYSTEM_CERTS:-}" ] && [ -z "${PIP_CERT:-}" ]; then
        PIP_CERT=$("$python" -c 'import ssl; paths = ssl.get_default_verify_paths(); print(paths.cafile or paths.capath or "")')
        export PIP_CERT
    fi
    .uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r scripts/uv.txt || stop
fi

# A user whose home cannot be written keeps uv's cache here.
if ! mkdir -p "$("$uv" cache dir)" 2>/dev/null; then
    export UV_CACHE_DIR="$PWD/.uv/cache"
fi

# The Makefile calls .venv/bin/…, so the environment is there whatever UV_PROJECT_ENVIRONMENT or VIRTUAL_ENV say.
unset VIRTUAL_ENV
UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never "$uv" sync --frozen --compile-bytecode --python "$python" || stop
