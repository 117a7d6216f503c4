"""A host: processes that see neither the driver's files nor each other's, and that end with the tests.

Mount and PID namespaces (unshare(1)) make it. Root has them everywhere; others need user namespaces, which some systems
forbid (`kernel.apparmor_restrict_unprivileged_userns`, or a container's seccomp profile): then starting one fails, with
what `unshare` says.
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from integration_tests.cluster.harness.environments import HOME, ROOT

_START_SECONDS = 150.0

LOCALHOST = "127.0.0.1 localhost"

HIDDEN = (
    Path("/tmp"),
    *(path for path in [Path(tempfile.gettempdir()).resolve()] if path != Path("/tmp")),
    *(ROOT / name for name in (".venv", "destination_datalake", "integration_tests")),
)
"""What is the driver's: its temporary files, its environment, its source."""

_INIT = """
set -eu
hosts=$1; shift
exec 3<"$1" 4<"$2"
installed=$1 spark=$2; shift 2
while [ "$1" != -- ]; do mkdir -p "$1"; mount -t tmpfs -o mode=1777 none "$1"; shift; done
shift
for folder in 3:"$installed" 4:"$spark"; do
    mkdir -p "${folder#*:}"
    mount --no-canonicalize --bind "/proc/self/fd/${folder%%:*}" "${folder#*:}"
done
exec 3<&- 4<&-
echo "$hosts" > /tmp/hosts
echo "127.0.0.1 $(uname -n)" >> /tmp/hosts
mount --bind /tmp/hosts /etc/hosts
cd /tmp
"$@" </dev/null &
cat >/dev/null
"""
"""The first process of a host. When it ends, at the end of its input, the kernel kills all others.

It opens what is installed before it hides folders that this may be in, and mounts it again over what it has hidden.
"""


class Host:
    """A command that runs as on a machine of its own, from entering to leaving.

    `hidden` are folders that it finds empty, but for what hosts have installed: the environments beside this module,
    and the Spark of `variables`. `names` are lines of its /etc/hosts, which has its own name too: Spark
    resolves it, and this machine's may have no address. Temporary files of its own go to /tmp, which
    is one of the hidden folders. `log` is where all that it prints goes.
    """

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        hidden: Sequence[Path],
        log: Path,
        names: str = LOCALHOST,
    ) -> None:
        self._command = command
        self._variables = variables
        self._hidden = hidden
        self._names = names
        self.log = log

    def __enter__(self) -> Self:
        # Without root, a user namespace lends what mounting takes.
        lent = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        unshare = ["unshare", *lent, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        spark = self._variables["SPARK_HOME"]
        installed = HOME if HOME.exists() else spark
        arguments = [self._names, str(installed), spark, *map(str, self._hidden)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*unshare, "sh", "-c", _INIT, "init", *arguments, "--", *self._command],
                env={**_container(), **self._variables},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.fail()

    def fail(self) -> None:
        """Lose the host: all of its processes are killed at once."""
        self._process.kill()
        self._process.communicate()

    def wait_for(self, pattern: str, count: int = 1) -> re.Match[str]:
        """Wait until the log matches so many times; return the last match. Raises AssertionError with the log."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            matches = list(re.finditer(pattern, self.text()))
            if len(matches) >= count:
                return matches[-1]
            time.sleep(0.1)
        code = self._process.poll()
        end = f"in {_START_SECONDS:.0f} s" if code is None else f"before it ended with {code}"
        raise AssertionError(f"no {pattern!r} {end}:\n{self.text()[-6000:]}")

    def text(self) -> str:
        """Return all that was printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def processes(self, part: str) -> list[psutil.Process]:
        """Return the host's living processes whose command line contains this."""
        return [process for process in self._descendants() if part in _command_line(process)]

    def _descendants(self) -> Iterator[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if process.status() != psutil.STATUS_ZOMBIE:
                        yield process


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _container() -> Mapping[str, str]:
    inherited = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    return {**inherited, "LANG": "C.UTF-8", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
