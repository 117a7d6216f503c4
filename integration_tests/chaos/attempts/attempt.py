"""One attempt of a sync, played as the platform plays it: what is sent, what comes back, and whether it may say so."""

import shutil
import signal
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from emulated_aws.server import SECRET_ACCESS_KEY

from integration_tests.chaos.attempts.source import CONFIDENTIAL, STREAM, Chunk, Sending
from integration_tests.chaos.attempts.versions import CURSOR, KEY
from integration_tests.chaos.aws.adversary import Adversary
from integration_tests.chaos.verdicts.oracle import Effect
from integration_tests.chaos.verdicts.reader import Broken
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_catalog, configured_stream, status
from integration_tests.harness.runs.launch import Launch, launch_command
from integration_tests.harness.runs.output import Message, ProtocolError, Run, record_count
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.running import PATIENCE
from integration_tests.harness.table_kinds import TableKind


@dataclass(frozen=True)
class Order:
    """What an attempt is to do: its catalog's ids, what the source sends, and how.

    `generation` None: a literal overwrite without ids. `waits`: each chunk is sent when the state of the one before has
    come back, not all at once. `completes`: the source ends well.
    """

    attempt: int
    generation: int | None
    overwrites: bool
    schema: Json
    chunks: Sequence[Chunk]
    waits: bool
    completes: bool
    layout: Json
    """The options of the table's partitions that its configuration has."""
    dedup: bool = False
    """Whether the records are versions of rows, of which the table is to keep the latest."""
    of_rival: bool = False
    """Whether it is a sync of another connection."""

    def stream(self) -> dict[str, object]:
        """Return the stream as the attempt's catalog has it."""
        if self.dedup:
            return configured_stream(
                STREAM,
                self.schema,
                mode="append_dedup",
                generation=self.generation,
                minimum=self.generation if self.overwrites else 0,
                sync_id=self.attempt,
                primary_key=KEY,
                cursor=CURSOR,
            )
        if self.generation is None:
            return configured_stream(STREAM, self.schema, mode="overwrite", generation=None, minimum=None, sync_id=None)
        minimum = self.generation if self.overwrites else 0
        return configured_stream(STREAM, self.schema, generation=self.generation, minimum=minimum, sync_id=self.attempt)

    def __str__(self) -> str:
        rival = "another connection " * self.of_rival
        verb = "overwrites with" if self.overwrites else "merges into" if self.dedup else "appends to"
        first, last = self.chunks[0].records[0].sending.position, self.chunks[-1].cursor - 1
        how = f"in {len(self.chunks)} chunks" + ", waiting for each state" * self.waits
        layout = f", {dict(self.layout)}" if self.layout else ""
        end = ", source fails" * (not self.completes)
        return f"{rival}{verb} generation {self.generation}: {first} to {last} {how}{layout}{end}"


class Account(Protocol):
    """An account with an adversary for each attempt, which is known by the access key that it was given."""

    @property
    def endpoint_url(self) -> str | None:
        """Where it is; None if that is where AWS is."""

    def new_key(self) -> str:
        """Return an access key that no other attempt has."""

    def watch(self, access_key_id: str, adversary: Adversary) -> None:
        """Let the requests that are signed with this key meet the adversary."""


@dataclass(frozen=True)
class Stage:
    """Where attempts are made: a lake, a kind of table in it, the account, and how the connector is started.

    A connector of a `cold` start shares no Spark with others.
    """

    lake: Lake
    kind: TableKind
    aws: Account
    launch: Launch
    folder: Path
    cold: Launch = launch_command


class Attempt:
    """A running attempt; leave the `with` block when it has ended."""

    def __init__(self, stage: Stage, order: Order, adversary: Adversary) -> None:
        self.order = order
        self.adversary = adversary
        self._folder = Path(tempfile.mkdtemp(dir=stage.folder))
        key = stage.aws.new_key()
        stage.aws.watch(key, adversary)
        credentials = {
            "credentials_title": "IAM User",
            "aws_access_key_id": key,
            "aws_secret_access_key": SECRET_ACCESS_KEY,
        }
        options: dict[str, object] = {"credentials": credentials, "flush_interval_seconds": 1}
        if stage.aws.endpoint_url is not None:
            options["endpoint_url"] = stage.aws.endpoint_url
        config = stage.lake.config(**stage.kind.options, **order.layout, **options)
        platform = Platform(self._folder, stage.launch)
        self._running = platform.start(config, configured_catalog(order.stream()))
        self.adversary.aim(self._running.process)
        self._fed = 0
        self._completed = False
        self._run: Run | None = None

    def __enter__(self) -> Self:
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.adversary.restored.set()
        # Tasks of a killed connector may live on in the shared Spark, and must not make its adversary strike again.
        self.adversary.armed.clear()
        self._running.__exit__(None, None, None)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def run(self) -> Run:
        """What the attempt left, once it has ended."""
        assert self._run is not None, "the attempt has not ended"
        return self._run

    def feed(self, chunks: int) -> None:
        """Send the next chunks. Stops when a blow has fallen or the connector has ended."""
        for chunk in self.order.chunks[self._fed : self._fed + chunks]:
            if self.order.waits and not self._wait_for_states(self._fed):
                return
            self._running.send(chunk.lines)
            self._fed += 1

    def wait_for_state(self) -> None:
        """Wait until the first state has come back, or the connector has ended."""
        self._wait_for_states(1)

    def land_all(self) -> bool:
        """Send what is left, and wait for its states. False if the connector has ended before."""
        self.feed(len(self.order.chunks))
        return self._fed == len(self.order.chunks) and self._wait_for_states(self._fed)

    def feed_all(self) -> None:
        """Send what is left, say that the stream is complete, and end the input. Stops as `feed` does."""
        self.feed(len(self.order.chunks))
        if self._fed < len(self.order.chunks) or not self._wait_for_states(self._fed if self.order.waits else 0):
            return
        if self.order.completes and not self._completed:
            self._running.send([status(STREAM, "COMPLETE")])
            self._completed = True
        self._running.end_input()

    def wait_for_blow(self) -> bool:
        """Wait until the blow has fallen; False if the connector has ended without it."""
        while not self._running.ended:
            if self.adversary.struck.wait(0.05):
                return True
        return self.adversary.struck.is_set()

    def end(self) -> Run:
        """Wait for the end, however it comes."""
        self._run = self._running.perish()
        return self._run

    def sent(self) -> frozenset[Sending]:
        """Return what was sent so far and can be a row."""
        return _rows(self.order.chunks[: self._fed])

    def acknowledged(self) -> frozenset[Sending]:
        """Return what of it is before the last state that has come back."""
        return _rows(self.order.chunks[: len(self.states())])

    def states(self) -> Sequence[Message]:
        """Return the states that have come back."""
        return self._running.wait_for_states(0) if self._run is None else self._run.states

    def effect(self) -> Effect:
        """Return what it has done, as far as the platform knows."""
        order, all_sent = self.order, self._fed == len(self.order.chunks)
        # Without ids an overwrite is complete when its input ends.
        completed = self._completed or (order.generation is None and all_sent)
        succeeded = self._run is not None and self._run.exit_code == 0
        return Effect(order.generation, order.overwrites, self.sent(), self.acknowledged(), completed, succeeded)

    def is_refused(self) -> bool:
        """Whether it has ended and said that the connection must start over, because of what another one has done."""
        errors = [] if self._run is None else self._run.errors
        return any("let only one connection overwrite" in error["message"].lower() for error in errors)

    def judge(self) -> None:
        """Raise Broken if something was said that may not be said, or not said that must be."""
        run, killed = self.run, self.adversary.killed
        if run.exit_code not in ((-signal.SIGKILL, 0, 1) if killed else (0, 1)):
            raise Broken(f"exit code {run.exit_code}\n{run.report()}")
        cursors = [state.body["stream"]["stream_state"]["cursor"] for state in run.states]
        if cursors != [chunk.cursor for chunk in self.order.chunks][: len(cursors)]:
            raise Broken(f"states came back as {cursors}, sent in {[chunk.cursor for chunk in self.order.chunks]}")
        if run.exit_code == 0 and len(cursors) < self._fed:
            raise Broken(f"exit code 0, and {self._fed - len(cursors)} states did not come back")
        for state, chunk in zip(run.states, self.order.chunks, strict=False):
            counted = record_count(state) + state.body["destinationStats"].get("rejectedRecordCount", 0.0)
            if counted != len(chunk.records):
                raise Broken(f"{state.raw.decode()} counts {counted} of {len(chunk.records)} records")
        written = sum(map(record_count, run.states))
        if run.exit_code == 0 and written != len(self.sent()):
            raise Broken(f"states count {written} rows in all, sent were {len(self.sent())}")
        output = b"\n".join(message.raw for message in run.messages) + run.stderr.encode()
        if CONFIDENTIAL.encode() in output:
            raise Broken("contents of a record were written to stdout or stderr")
        if run.exit_code == 1 and not run.errors:
            raise Broken(f"exit code 1 without an error\n{run.report()}")

    def _wait_for_states(self, count: int) -> bool:
        for _ in range(int(PATIENCE / 0.2)):
            if self.adversary.struck.is_set() and not self.adversary.restored.is_set():
                return False
            try:
                self._running.wait_for_states(count, timeout=0.2)
            except TimeoutError:
                continue
            except ProtocolError:
                return False
            return True
        raise Broken(f"state {count} has not come within {PATIENCE:.0f} s")


def _rows(chunks: Iterable[Chunk]) -> frozenset[Sending]:
    return frozenset(sent.sending for chunk in chunks for sent in chunk.records if sent.row is not None)
