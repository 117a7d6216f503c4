#!/usr/bin/env bash
# Makes sure that there is a browser for the tests of the page of reports: $CHROME, or a Chromium on the PATH.
set -euo pipefail

if [ -n "${CHROME:-}" ] || command -v chromium-headless-shell chromium >/dev/null; then
    exit 0
fi
"$(dirname "$0")/apt-package.sh" "A browser" chromium-headless-shell chromium
