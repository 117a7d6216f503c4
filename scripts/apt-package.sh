#!/usr/bin/env bash
# Usage: apt-package.sh WHAT PACKAGE...
# Installs the first PACKAGE that this Debian or Ubuntu offers, when run as root. Anyone else is told the one command
# that does it, and the script fails: nothing asks for a password in the middle of a build.
set -euo pipefail

what=$1
shift

if ! command -v apt-get >/dev/null; then
    echo "$what is missing. Install it with your system's package manager, then run the same command again." >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "$what is missing. Install it with:" >&2
    echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends $1" >&2
    exit 1
fi

export DEBIAN_FRONTEND=noninteractive
echo "$what is missing: installing it." >&2
apt-get update -qq
for package in "$@"; do
    if apt-cache show "$package" >/dev/null 2>&1; then
        exec apt-get install -y -qq --no-install-recommends "$package"
    fi
done
echo "$what is missing and no package of this system provides it (tried: $*)." >&2
exit 1
