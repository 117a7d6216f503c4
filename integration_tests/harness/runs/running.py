"""A run of the connector, from its start to its end.

Every run has its own temporary directory. After a run, three properties are checked: stdout contains only protocol
messages, no process of the run is alive, and the temporary directory is empty (unless the run was killed).
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from integration_tests.harness.runs.launch import Launch
from integration_tests.harness.runs.output import Message, ProtocolError, Run

PATIENCE = 180.0
"""The default timeout in seconds for anything that a test waits for."""

_GONE_WITHIN = 5.0
"""The time in seconds for which child processes may outlive the connector's own process."""


class Running:
    """A running connector. Its stdin stays open until `close`, `terminate` or `kill`.

    At the end of the `with` block, all remaining processes of the run are killed.
    """

    def __init__(self, arguments: Sequence[str], workdir: Path, secrets: Sequence[str], launch: Launch) -> None:
        """Start `destination-datalake` with these arguments, in the working folder `workdir`.

        The output must not contain any of `secrets`.
        """
        self._workdir = workdir
        self._secrets = secrets
        self._tmp = workdir / "tmp"
        self._tmp.mkdir()
        self._stderr = (workdir / "stderr").open("wb")
        self._messages: list[Message] = []
        self._broken: ProtocolError | None = None
        self._news = threading.Condition()
        self._killed = False
        self._started = time.monotonic()
        self.process = launch(arguments, _environment(self._tmp), self._stderr)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        self._close_stdin()
        self._reader.join(_GONE_WITHIN)
        assert self.process.stdout is not None
        if not self._reader.is_alive():
            self.process.stdout.close()
        self._stderr.close()

    def send(self, lines: Iterable[bytes]) -> None:
        """Write lines to the connector's stdin. Blocks while the connector does not read. Ignores a broken pipe."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            for line in lines:
                self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    def wait_for_states(self, count: int, timeout: float = PATIENCE) -> list[Message]:
        """Wait until the connector has emitted at least `count` states, and return all states in order.

        Raises TimeoutError after `timeout` seconds, and ProtocolError if the connector ends before.
        """
        return self._wait(lambda: [m for m in self._messages if m.type == "STATE"], count, timeout)

    def wait_for_state(self, timeout: float = PATIENCE) -> Message:
        """Wait for the first state, and return it."""
        return self.wait_for_states(1, timeout)[0]

    def wait_for_log(self, text: str, timeout: float = PATIENCE) -> Message:
        """Wait for a LOG message that contains `text`, and return it."""
        return self._wait(
            lambda: [m for m in self._messages if m.type == "LOG" and text in m.body["message"]], 1, timeout
        )[0]

    @property
    def ended(self) -> bool:
        """Whether the connector has ended, so that no more output follows."""
        return not self._reader.is_alive()

    def end_input(self) -> None:
        """Close the connector's stdin, without waiting for the connector to end."""
        self._close_stdin()

    def close(self, timeout: float = PATIENCE) -> Run:
        """Close the connector's stdin, wait for its end, check what it left behind, and return its outcome."""
        self._close_stdin()
        return self._end(timeout)

    def terminate(self, timeout: float = 60.0) -> Run:
        """Send SIGTERM while stdin is open, and wait for the end. The platform waits 60 seconds too."""
        self.process.send_signal(signal.SIGTERM)
        return self._end(timeout)

    def kill(self) -> Run:
        """Send SIGKILL, like an out-of-memory killer, and wait for the end. Files left on disk are not an error."""
        self._killed = True
        self.process.kill()
        return self._end(PATIENCE)

    def kill_jvm(self) -> None:
        """Kill the JVM that the connector started. Raises ProtocolError if there is none."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            # Children may end during the search.
            with suppress(psutil.NoSuchProcess):
                if child.name() == "java":
                    child.kill()
                    return
        raise ProtocolError(f"the connector has no JVM\n{self._tail()}")

    def perish(self) -> Run:
        """Close stdin of a connector that will kill itself, and wait for its end. Ignores files left on disk."""
        self._killed = True
        self._close_stdin()
        return self._end(PATIENCE)

    # The rest is the platform's own business

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                if not line.endswith(b"\n"):
                    raise ProtocolError(f"the last line of stdout is torn: {line[:500]!r}")
                message = Message.parse(line[:-1])
            except ProtocolError as error:
                self._broken = self._broken or error
                continue
            with self._news:
                self._messages.append(message)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def _wait(self, look: Callable[[], list[Message]], count: int, timeout: float) -> list[Message]:
        ended_by = time.monotonic() + timeout
        with self._news:
            while len(messages := look()) < count:
                if not self._reader.is_alive():
                    raise ProtocolError(
                        f"the connector ended; of {count} messages {len(messages)} came\n{self._tail()}"
                    )
                if time.monotonic() > ended_by:
                    raise TimeoutError(f"of {count} messages {len(messages)} came in {timeout} s\n{self._tail()}")
                self._news.wait(0.5)
        return messages

    def _end(self, timeout: float) -> Run:
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            # On SIGABRT, Python's fault handler prints the stack of every thread.
            self.process.send_signal(signal.SIGABRT)
            time.sleep(1)
            raise TimeoutError(f"the connector did not end within {timeout} s\n{self._tail()}") from None
        seconds = time.monotonic() - self._started
        survivors = self._family_after(PATIENCE if self._killed else _GONE_WITHIN)
        if survivors:
            raise ProtocolError(f"processes outlive the connector: {survivors}\n{self._tail()}")
        self._reader.join(_GONE_WITHIN)
        if self._reader.is_alive():
            raise ProtocolError("the connector has ended, but another process still holds its stdout open")
        if self._broken:
            raise self._broken
        run = Run(self.process.returncode, tuple(self._messages), self._tail(None), seconds)
        self._check(run)
        return run

    def _check(self, run: Run) -> None:
        files = sorted(str(path.relative_to(self._tmp)) for path in self._tmp.rglob("*"))
        if files and not self._killed:
            raise ProtocolError(f"temporary files left behind: {files[:20]}\n{run.report()}")
        output = b"\n".join(message.raw for message in run.messages).decode() + run.stderr
        if any(secret in output for secret in self._secrets):
            raise ProtocolError("a secret of the configuration was written to stdout or stderr")

    def _family(self) -> list[psutil.Process]:
        """Return the living processes of the run: those with the run's temporary directory in their environment.

        This includes orphans that init has adopted, which are not in the tree of child processes.
        """
        family: list[psutil.Process] = []
        if not self.process.pid:
            return family
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
                if process.environ().get("TMPDIR") == str(self._tmp) and process.status() != psutil.STATUS_ZOMBIE:
                    family.append(process)
        return family

    def _family_after(self, patience: float) -> list[psutil.Process]:
        ended_by = time.monotonic() + patience
        while (family := self._family()) and time.monotonic() < ended_by:
            time.sleep(0.1)
        return family

    def _close_stdin(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def _tail(self, characters: int | None = 6000) -> str:
        text = (self._workdir / "stderr").read_text(errors="replace")
        if characters is None:
            return text
        # In the fault handler's output, the thread that crashed is the first one.
        crash = text.find("Fatal Python error")
        return text[-characters:] if crash < 0 else text[crash : crash + characters]


def _environment(tmp: Path) -> dict[str, str]:
    """Return an environment like a container's. Removes AWS and Spark settings, so that the configuration decides."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "SPARK_", "PYSPARK_"))}
    return inherited | {"TMPDIR": str(tmp), "AWS_EC2_METADATA_DISABLED": "true", "PYTHONFAULTHANDLER": "1"}
