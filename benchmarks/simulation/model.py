"""Simulate a large sync on a cluster, event by event.

A sync is a chain of stages with queues between them. Each stage is a process of the simulation:

    stdin ─► read ─► upload ─► encode ─► commit
             1 core   threads   executors' cores
             of the driver

- *read*: one core of the driver splits lines into segments and writes them to its disk.
- *upload*: several threads upload segments to S3. They share the driver's network and its other cores.
- *encode*: a job reads the staged segments, divided into tasks by the connector's own rule (`LearnedBatches`). The
  driver schedules tasks one after the other. Each task reads its segments, encodes them on one core, and uploads its
  file.
- *commit*: the driver commits one batch after the other to one table.

Reading waits while uncommitted data fill the buffer, or staged data reach their limit. The simulation does not include
lost executors, throttling by S3, changes of columns and rejects.
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
    """Measured costs: CPU seconds of one core per gigabyte of messages, and seconds of single steps."""

    read: float
    """CPU seconds of the driver per gigabyte, from stdin to segments on disk."""
    upload: float
    """CPU seconds of the driver per gigabyte, for uploading segments from disk to S3."""
    encode: float
    """CPU seconds of an executor per gigabyte, from segments in S3 to data files in S3."""
    job: float
    """Seconds until the first task of a job runs."""
    task: float
    """Seconds of Spark's scheduler per task. The scheduler handles one task after the other."""
    commit: float
    """Seconds per commit of a batch, without waiting for AWS."""
    start: float
    """Seconds until the first job can run."""


@dataclass(frozen=True)
class S3:
    """The latency of requests to S3 (log-normal) and the bandwidth of a connection.

    AWS states 100 to 200 ms to the first byte, and 85 to 90 MB/s per connection:
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html
    """

    median_seconds: float = 0.1
    spread: float = 0.6
    """The standard deviation of the latency's logarithm. With 0.6, one in a hundred requests takes at least four times
    the median."""
    connection: float = 85e6
    """The bandwidth of one connection in bytes per second."""

    def seconds(self, size: float, chance: random.Random) -> float:
        """Return the seconds that a request for `size` bytes takes."""
        return self.median_seconds * chance.lognormvariate(0, self.spread) + size / self.connection


@dataclass(frozen=True)
class Setting:
    """The sync to simulate: `gigabytes` of messages on executors with `cores` cores in total."""

    gigabytes: float
    cores: int
    driver_cores: int = 4
    driver_network: float = 1.25e9
    """The bandwidth of the driver in bytes per second: 10 Gbit/s."""
    uploads: int = CONCURRENT_CALLS
    """The number of segments that the driver uploads concurrently."""
    requests_of_commit: int = 8
    """The number of sequential requests to S3 and Glue per commit."""
    staged_bytes: int = staged_bytes(4096 * MiB)
    """The maximum number of bytes that the driver has staged in S3, but not committed yet."""
    target_bytes: int = 128 * MiB
    batch_bytes: int = 256 * MiB


@dataclass(frozen=True)
class Outcome:
    """The result of a simulation.

    `seconds` is the total time. `reading` is the fraction of this time in which the driver read messages. `encoding` is
    the fraction of all cores' time in which tasks ran.
    """

    seconds: float
    reading: float
    encoding: float
    jobs: int
    tasks: int
    """The number of tasks. Each task writes a file."""
    file_share: float
    """The number of bytes in files per byte of messages. The simulation uses the connector's initial assumption."""


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
        """Run a job for each batch that is due, one after the other.

        Several of these processes run concurrently (`LearnedBatches.jobs`).
        """
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
                # Divide the rest among all tasks that can run, as the connector does at the end of a sync.
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
    """Simulate one sync. The outcome depends only on the arguments, including `seed`."""
    return _Sync(setting, costs, s3, seed).run()
