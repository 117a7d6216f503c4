#!/usr/bin/env bash
# Makes sure that the Java that Spark will start is 17 or newer: $JAVA_HOME's where that is set, the PATH's otherwise.
set -euo pipefail

java_version() {
    "$1" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

# Not a pipe of java_version's: a missing java must read as "no version", not end the script.
new_enough() {
    local version
    version=$(java_version "$1" || true)
    [ -n "$version" ] && [ "$version" -ge 17 ]
}

if new_enough "${JAVA_HOME:+$JAVA_HOME/bin/}java"; then
    exit 0
fi
# Spark prefers JAVA_HOME to the PATH, so installing another Java would not help.
if [ -n "${JAVA_HOME:-}" ]; then
    echo "JAVA_HOME=$JAVA_HOME does not hold a Java 17 or newer. Point it at one, or run: unset JAVA_HOME" >&2
    exit 1
fi
if [ "$(uname -s)" = Darwin ]; then
    echo "Java 17 or newer is missing. Install it with:" >&2
    echo "    brew install --cask temurin@17" >&2
    exit 1
fi

# Debian 12 and Ubuntu have 17; Debian 13 starts at 21.
"$(dirname "$0")/apt-package.sh" "Java 17 or newer" openjdk-17-jre-headless openjdk-21-jre-headless
if ! new_enough java; then
    echo "A Java 17 or newer is installed, but 'java' is still an older one. Choose it with:" >&2
    echo "    update-alternatives --config java" >&2
    exit 1
fi
