"""Describe unexpected errors, and detect exhausted memory, threads and file descriptors.

Any operation can fail when a resource is exhausted, so callers first check whether exhaustion caused a failure.
Otherwise, they would report that Java is missing if it cannot start, and that a file is corrupt if it cannot be read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from destination_datalake.errors import ConnectorError, Failure

_CGROUP = Path("/sys/fs/cgroup")
MiB = 1024 * 1024

REPORT_ERROR = "Report this error, with the log, to the maintainers of the connector."
"""The last sentence of messages about unexpected errors: the advice to the user."""


def unforeseen(message: str, error: BaseException) -> Failure:
    """Return the failure for an unexpected error. `message` names the failed operation, without a full stop.

    The failure is transient if a resource is exhausted, otherwise a system_error.
    """
    if (exhausted := exhaustion(error)) is not None:
        return Failure(f"{message}. {exhausted}", trace_of(error), "transient_error")
    return Failure(f"{message}: an unexpected {described(error)}. {REPORT_ERROR}", trace_of(error), "system_error")


def described(error: BaseException) -> str:
    """Return the type of an error and, if the error is from the operating system, DuckDB or Arrow, its text.

    Removes from the text anything that could be a value of a record. For an error of AWS, returns the type and the code
    (botocore: `ClientError.response`), because the text may quote a name or value.
    """
    name, library = type(error).__name__, type(error).__module__.partition(".")[0]
    if isinstance(error, OSError) and error.strerror:
        return f"{name} ({error.strerror})"
    if library == "botocore" and (response := getattr(error, "response", None)) is not None:
        return f"{name} ({response.get('Error', {}).get('Code', 'no code')})"
    families = {base.__name__ for base in type(error).__mro__}
    if library not in ("duckdb", "_duckdb", "pyarrow") or not families.isdisjoint(_ABOUT_VALUES):
        return name
    line = next(iter(str(error).strip().splitlines()), "")
    for pattern in _VALUES:
        line = pattern.sub("…", line)
    line = line if len(line) <= _MAX_LENGTH else f"{line[:_MAX_LENGTH]}…"
    return f"{name} ({line.rstrip('.')})" if line else name


def trace_of(error: BaseException) -> str:
    """Return the stack traces of an error and its causes, each followed by a description of the error.

    Unlike Python's own format, the descriptions contain no values of records (see `described`).
    """
    frames = ("".join([*traceback.format_tb(cause.__traceback__), described(cause)]) for cause in _causes(error))
    return "\n\nCaused by:\n".join(frames)


_ABOUT_VALUES = frozenset({"DataError", "IntegrityError"})
"""DuckDB's errors about invalid values. The connector does not report the texts of these errors, because the texts
contain the values without quotes."""

_VALUES = (
    re.compile(r"(?<=nput: ).*"),
    re.compile(r"'(?:[^'\\]|\\.|'')*'?|\"(?:[^\"\\]|\\.|\"\")*\"?|`[^`]*`?"),
    re.compile(r"(?<=\bvalue )\S+(?= )|[-+]?\d[\d.,eE+-]*"),
)
_MAX_LENGTH = 300


def exhaustion(error: BaseException | None, text: str = "") -> str | None:
    """Return a message that names the exhausted resource, its limits and the remedy.

    Returns None if no resource is exhausted. Searches the types, error numbers and texts of `error` and of its causes.
    Also searches `text`, which may be the output of a process.
    """
    causes = list(_causes(error))
    # Several resources can match. For example, a JVM that fails to create a thread also reports a lack of memory.
    exhausted = [kind for kind in _RESOURCES if any(map(kind.is_exhausted, causes)) or kind.texts.search(text)]
    if not exhausted:
        return None
    if exhausted == [_THREADS] and any(_process_limit(resource.RLIMIT_AS, "", 1, "")):
        exhausted = [_THREADS, _MEMORY]  # A thread's stack needs address space.
    names = " or ".join(kind.name for kind in exhausted)
    limits = ", ".join(limit for kind in exhausted for limit in kind.limits()) or "unknown limits"
    return f"This machine or container has run out of {names} ({limits}). {' '.join(kind.remedy for kind in exhausted)}"


@dataclass(frozen=True, slots=True)
class _Resource:
    """A resource that can be exhausted, such as memory.

    The operating system's error numbers in `numbers`, and texts that match `texts`, show that the resource is
    exhausted. `limits` yields the current limits as phrases. `remedy` is the advice to the user.
    """

    name: str
    numbers: frozenset[int]
    texts: re.Pattern[str]
    limits: Callable[[], Iterator[str]]
    remedy: str

    def is_exhausted(self, error: BaseException) -> bool:
        if isinstance(error, ConnectorError):
            return False  # The error already has a known failure.
        number = error.errno if isinstance(error, OSError) else None
        return (
            number in self.numbers or self.texts.search(f"{type(error).__name__}: {error}"[:_TEXT_LENGTH]) is not None
        )


_TEXT_LENGTH = 2000


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        # Skip suppressed contexts, because an EAGAIN among them may come from a pipe, not from a lack of threads.
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _memory_limits() -> Iterator[str]:
    if (limit := _number("memory.max", "memory/memory.limit_in_bytes")) is not None:
        yield f"the container's limit is {limit // MiB:,} MiB"
        if (used := _number("memory.current", "memory/memory.usage_in_bytes")) is not None:
            yield f"{used // MiB:,} MiB are in use"
    with contextlib.suppress(OSError, ValueError):
        matches = re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        amounts = {name: int(kib) // 1024 for name, kib in matches}
        if len(amounts) == 2:
            yield f"{amounts['MemAvailable']:,} of the machine's {amounts['MemTotal']:,} MiB are available"
    yield from _process_limit(resource.RLIMIT_AS, "ulimit -v", 1024, " KiB")


def _thread_limits() -> Iterator[str]:
    if (limit := _number("pids.max", "pids/pids.max")) is not None:
        used = _number("pids.current", "pids/pids.current")
        yield f"the container's limit is {limit:,}" + ("" if used is None else f", {used:,} are in use")
    yield from _process_limit(resource.RLIMIT_NPROC, "ulimit -u", 1, " processes per user")


def _descriptor_limits() -> Iterator[str]:
    yield from _process_limit(resource.RLIMIT_NOFILE, "ulimit -n", 1, " files per process")


def _process_limit(kind: int, name: str, unit: int, suffix: str) -> Iterator[str]:
    soft, _ = resource.getrlimit(kind)
    if soft != resource.RLIM_INFINITY:
        yield f"{name} is {soft // unit:,}{suffix}"


def _number(v2: str, v1: str) -> int | None:
    """Return a limit or count of this process's control group.

    Returns None if the number does not exist, or is a limit that the machine's memory cannot reach. `v2` and `v1` name
    the number's file in cgroup versions 2 and 1, relative to /sys/fs/cgroup.
    """
    for name in (v2, v1):
        with contextlib.suppress(OSError, ValueError):
            # Version 2 writes "max" if there is no limit, which is no number. Version 1 writes a number near 2 to the
            # power of 63.
            number = int((_CGROUP / name).read_bytes())
            return number if number < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") else None
    return None


_DESCRIPTORS = _Resource(
    "file descriptors",
    frozenset({errno.EMFILE, errno.ENFILE}),
    # Spark's JVM does not report why it cannot open a jar. Its logging configuration is the first file that it fails to
    # open.
    re.compile(r"Too many open files|shared object file: Error 24|Config file not found on classpath"),
    _descriptor_limits,
    "Raise the limit of open files to at least 1,024 (recommended: 65,536), and run the sync again.",
)
_THREADS = _Resource(
    "threads",
    frozenset({errno.EAGAIN}),
    re.compile(
        r"can't start new thread|unable to create (?:new )?native thread|pthread_create failed|"
        r"Cannot create (?:worker )?(?:GC|VM) thread|Failed to start thread|Resource temporarily unavailable",
        re.IGNORECASE,
    ),
    _thread_limits,
    "Raise the limit of processes and threads (pids) to at least 1,024, and run the sync again.",
)
_MEMORY = _Resource(
    "memory",
    frozenset({errno.ENOMEM}),
    re.compile(
        # Case matters in the names of classes, because a text may quote a table with a similar name.
        r"(?-i:MemoryError|OutOfMemory(?:Error|Exception))|Out of Memory Error|insufficient memory|"
        r"Could not reserve enough space|Could not allocate (?:compressed class space|metaspace)|"
        # DuckDB and catalogs also write "Failed to commit" if a transaction fails.
        r"Failed to mmap|Failed to (?:reserve|commit)(?: \w+){0,4} (?:memory|space|heap)|"
        r"Cannot allocate memory|Not enough space|failed to map segment|os::commit_memory|std::bad_alloc",
        re.IGNORECASE,
    ),
    _memory_limits,
    "Add memory (4 GiB is enough for most syncs), or lower batch_size_mb or spark.driver.memory (in spark.conf), and "
    "run the sync again.",
)
_RESOURCES = (_DESCRIPTORS, _THREADS, _MEMORY)
