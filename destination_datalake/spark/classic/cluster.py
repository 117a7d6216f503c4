"""A cluster that gives no executors: it is noticed, jobs that wait for them are given up, and a sentence says why.

Spark itself waits for ever, and only repeats a warning ("Initial job has not accepted any resources").
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from destination_datalake.spark.failure import SparkFailed

PATIENCE_SECONDS = 60.0
"""How long a job waits for a first executor, unless the property below says longer."""

PATIENCE_PROPERTY = "spark.scheduler.maxRegisteredResourcesWaitingTime"
"""Spark's own limit of waiting for executors before it begins with tasks.
https://spark.apache.org/docs/latest/configuration.html#scheduling
"""

_POLL_SECONDS = 1.0


class ExecutorWatch:
    """Gives up the jobs of a cluster when there is no executor for `patience` seconds in a row."""

    def __init__(
        self, executors: Callable[[], int], give_up: Callable[[], None], patience: float, every: float = _POLL_SECONDS
    ) -> None:
        """`executors` counts those that are registered now; `give_up` cancels all jobs. Both may raise: Spark ended.

        They are counted `every` so many seconds.
        """
        self._executors = executors
        self._give_up = give_up
        self._every = every
        self._polls = max(1, round(patience / every))
        self._gave_up = threading.Event()

    @property
    def gave_up(self) -> bool:
        """Whether jobs were given up."""
        return self._gave_up.is_set()

    @contextlib.contextmanager
    def job(self) -> Iterator[None]:
        """Watch while the block runs a job."""
        ended = threading.Event()
        watching = threading.Thread(target=self._watch, args=(ended,), name="spark-executors", daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()

    def _watch(self, ended: threading.Event) -> None:
        without = 0
        with contextlib.suppress(Exception):
            while not ended.wait(self._every):
                without = 0 if self._executors() else without + 1
                if without >= self._polls:
                    self._gave_up.set()
                    self._give_up()
                    return


def no_executor(properties: Mapping[str, str], seconds: float) -> SparkFailed:
    """Return that there was no executor for so long; `properties` are the application's."""
    cores = properties.get("spark.executor.cores")
    at_most = properties.get("spark.cores.max")
    asked = "".join(
        (
            f"executors with {properties.get('spark.executor.memory', '1g')} of memory",
            f" and {cores} cores" if cores else "",
            f", {at_most} cores in all" if at_most else "",
        )
    )
    return SparkFailed(
        f"{properties['spark.master']} has had no executor for this sync for {seconds:.0f} s; asked for are {asked}. "
        "Is so much free there, and are its workers up? Otherwise ask for less in spark.conf (spark.executor.memory, "
        f"spark.executor.cores, spark.cores.max), or allow more time with {PATIENCE_PROPERTY}."
    )


def executors_end(properties: Mapping[str, str], output: Sequence[str]) -> SparkFailed | None:
    """Return that executors end before they have run anything, if `output`, what the JVM printed, has ends of some."""
    reason = _last(_EXECUTOR_ENDED, output)
    if reason is None:
        return None
    driver = f"{properties.get('spark.driver.host', 'its host name')}:{properties.get('spark.driver.port', 'any port')}"
    return SparkFailed(
        f"Executors that {properties['spark.master']} starts for this sync end at once (the last: {reason}). Either "
        f"they do not reach this driver, at {driver}: set spark.driver.host in spark.conf to an address of this "
        "machine that they reach, and spark.driver.port and spark.driver.blockManager.port to ports that firewalls let "
        "pass. Or they cannot run: their logs on the cluster tell.",
        "config_error",
    )


def application_ended(properties: Mapping[str, str], output: Sequence[str]) -> SparkFailed | None:
    """Return why the cluster has ended the application, if the JVM's output says that it has."""
    reason = _last(_APPLICATION_ENDED, output)
    if reason is None:
        return None
    if "unresponsive" in reason:
        return SparkFailed(
            f"{properties['spark.master']} did not answer ({reason.rstrip('.')}). Is it up, and can this machine reach "
            "it? Otherwise correct spark.master."
        )
    executor = _last(_EXECUTOR_ENDED, output)
    last = "" if executor is None else f"; the last executor to end: {executor}"
    return SparkFailed(
        f"{properties['spark.master']} has ended this sync's application ({reason}{last}). The sync can be run again "
        "and continues from its last state."
    )


_EXECUTOR_ENDED = re.compile(r"Executor updated: \S+ is now ((?:EXITED|FAILED|LOST)\b.*)")
_APPLICATION_ENDED = re.compile(r"Application has been killed\. Reason: (.*)")


def _last(pattern: re.Pattern[str], output: Sequence[str]) -> str | None:
    return next((found[1].strip() for line in reversed(output) if (found := pattern.search(line))), None)
