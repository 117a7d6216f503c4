"""What a large sync on a cluster takes, simulated event by event.

A sync is a chain of stages with queues between them. Each stage is a process of the simulation:

    stdin ─► read ─► upload ─► encode ─► commit
             1 core   threads   executors' cores
             of the driver

*read*: one core of the driver splits lines into segments and writes them to its disk. *upload*: segments are put to S3
by several threads, which share the driver's network and its other cores. *encode*: a job takes what is staged, cut into
tasks by the connector's own rule (`LearnedBatches`); its driver hands tasks out one after the other, and each task
reads its segments, encodes them on one core, and uploads its file. *commit*: one after the other, into one table.

Reading waits while what has been read and not committed fills the buffer, or what is staged its bound. Not in the
model: executors that are lost, S3 that throttles, columns that change, rejects.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from destination_datalake.buffer.backlog import staged_bytes
from destination_datalake.buffer.batching import EXPECTED_YIELDS, LearnedBatches
from destination_datalake.buffer.buffer import SEGMENT_BYTES
from destination_datalake.buffer.disk import MiB
from destination_datalake.buffer.staging import CONCURRENT_CALLS
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.sync.landing import MAX_TASKS

Events = Generator[simpy.Event, Any, Any]

GB = 1_000_000_000

_STREAM = StreamId(None, "stream")


@dataclass(frozen=True)
class Costs:
    """Measured: CPU seconds of one core for a gigabyte of messages, and seconds of single steps."""

    read: float
    """Driver: from stdin to segments on disk."""
    upload: float
    """Driver: a segment from disk to S3."""
    encode: float
    """Executor: from a segment in S3 to a data file in S3."""
    job: float
    """Until the first task of a job runs."""
    task: float
    """Of Spark's scheduler for each task, one after the other."""
    commit: float
    """Of a batch, besides waiting for AWS."""
    start: float
    """Until the first job can run."""


@dataclass(frozen=True)
class S3:
    """Latency of requests (log-normal) and bandwidth of a connection.

    AWS names 100 to 200 ms for the first byte, and 85 to 90 MB/s for a connection.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html
    """

    median_seconds: float = 0.1
    spread: float = 0.6
    """Of the latency's logarithm: 0.6 makes every hundredth request take four times the median."""
    connection: float = 85e6
    """Bytes per second."""

    def seconds(self, size: float, chance: random.Random) -> float:
        """Return the time of a request for so many bytes."""
        return self.median_seconds * chance.lognormvariate(0, self.spread) + size / self.connection


@dataclass(frozen=True)
class Setting:
    """What is simulated: a sync of `gigabytes` of messages on `cores` of executors."""

    gigabytes: float
    cores: int
    driver_cores: int = 4
    driver_network: float = 1.25e9
    """Bytes per second: ten gigabits."""
    uploads: int = CONCURRENT_CALLS
    """Segments that are uploaded at the same time."""
    requests_of_commit: int = 8
    """Requests to S3 and Glue for one commit, one after the other."""
    staged_bytes: int = staged_bytes(4096 * MiB)
    """The most bytes that are staged in S3 and not committed."""
    target_bytes: int = 128 * MiB
    batch_bytes: int = 256 * MiB


@dataclass(frozen=True)
class Outcome:
    """What was simulated: seconds in all, the share of time in which the driver read, and executors worked."""

    seconds: float
    reading: float
    encoding: float
    jobs: int
    tasks: int
    """Each of them makes a file."""
    file_share: float
    """Bytes of files for a byte of messages, as the connector expects at first."""


class _Sync:
    def __init__(self, setting: Setting, costs: Costs, s3: S3, seed: int) -> None:
        self.env = simpy.Environment()
        self.setting = setting
        self.costs = costs
        self.s3 = s3
        self.chance = random.Random(seed)
        self.segments = max(1, round(setting.gigabytes * GB / SEGMENT_BYTES))
        self.room = simpy.Container(self.env, setting.staged_bytes, setting.staged_bytes)
        self.read = simpy.Store(self.env)
        self.staged = 0
        self.uploaded = 0
        self.taken = 0
        self.committed = 0
        self.cpu = simpy.Resource(self.env, max(1, setting.driver_cores - 1))
        self.scheduler = simpy.Resource(self.env, 1)
        self.cores = simpy.Resource(self.env, setting.cores)
        self.table = simpy.Resource(self.env, 1)
        self.changed = self.env.event()
        self.slots = min(setting.cores, MAX_TASKS)
        self.sizes = LearnedBatches(
            setting.batch_bytes,
            setting.target_bytes,
            setting.staged_bytes,
            EXPECTED_YIELDS["Parquet", "ZSTD"],
            parallelism=self.slots,
        )
        self.tasks_running = self.jobs = self.tasks = 0
        self.reading = self.encoding = 0.0

    def run(self) -> Outcome:
        self.env.process(self._read())
        for _ in range(self.setting.uploads):
            self.env.process(self._upload())
        ended = self.env.all_of([self.env.process(self._land()) for _ in range(LearnedBatches.jobs)])
        self.env.run(ended)
        seconds = self.env.now
        return Outcome(
            seconds,
            self.reading / seconds,
            self.encoding / seconds / self.setting.cores,
            self.jobs,
            self.tasks,
            self.sizes.expected_output_ratio(_STREAM),
        )

    def _change(self) -> None:
        self.changed.succeed()
        self.changed = self.env.event()

    def _read(self) -> Events:
        seconds = self.costs.read * SEGMENT_BYTES / GB
        for _ in range(self.segments):
            yield self.room.get(SEGMENT_BYTES)
            yield self.env.timeout(seconds)
            self.reading += seconds
            yield self.read.put(SEGMENT_BYTES)

    def _upload(self) -> Events:
        network = self.setting.uploads * SEGMENT_BYTES / self.setting.driver_network
        while True:
            size = yield self.read.get()
            with self.cpu.request() as core:
                yield core
                yield self.env.timeout(self.costs.upload * size / GB)
            yield self.env.timeout(max(network, self.s3.seconds(size, self.chance)))
            self.uploaded += 1
            self.staged += size
            self._change()

    def _land(self) -> Events:
        """Run jobs, one after the other, of what is due; three of these processes run at the same time."""
        yield self.env.timeout(self.costs.start)
        while True:
            ended = self.uploaded == self.segments
            share = self.sizes.share(_STREAM)
            idle = max(1, self.slots - self.tasks_running)
            due = self.staged >= max(self.setting.batch_bytes, share) or (ended and self.staged > 0)
            if not due or self.tasks_running > self.slots:
                if ended and self.staged == 0:
                    return
                yield self.changed
                continue
            tasks = max(1, min(idle, self.staged // share))
            if ended:
                # The rest is shared by all tasks that can run, as at the connector's end.
                tasks = min(idle, -(-self.staged // SEGMENT_BYTES))
            size = min(self.staged, tasks * (self.sizes.largest_share if ended else share))
            self.staged -= size
            self.jobs += 1
            self.tasks += tasks
            self.tasks_running += tasks
            yield self.env.timeout(self.costs.job)
            yield self.env.all_of([self.env.process(self._task(size / tasks)) for _ in range(tasks)])
            self.tasks_running -= tasks
            with self.table.request() as turn:
                yield turn
                answers = sum(self.s3.seconds(0, self.chance) for _ in range(self.setting.requests_of_commit))
                yield self.env.timeout(self.costs.commit + answers)
            yield self.room.put(size)
            self._change()

    def _task(self, size: float) -> Events:
        with self.scheduler.request() as turn:
            yield turn
            yield self.env.timeout(self.costs.task)
        with self.cores.request() as core:
            yield core
            began = self.env.now
            segments = max(1, round(size / SEGMENT_BYTES))
            waiting = sum(self.s3.seconds(size / segments, self.chance) for _ in range(segments))
            file = size * self.sizes.expected_output_ratio(_STREAM)
            yield self.env.timeout(waiting + self.costs.encode * size / GB + self.s3.seconds(file, self.chance))
            self.encoding += self.env.now - began


def simulate(setting: Setting, costs: Costs, s3: S3, seed: int = 1) -> Outcome:
    """Simulate one sync; the same seed gives the same outcome."""
    return _Sync(setting, costs, s3, seed).run()
