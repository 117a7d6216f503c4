"""Plays rounds, some at a time, each worker in an account of its own and with a Spark of its own."""

import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.queues import Queue
from pathlib import Path
from typing import TYPE_CHECKING

from emulated_aws.server import SECRET_ACCESS_KEY, AwsServer

from integration_tests.catalogs.behaviour import SigV4, glue
from integration_tests.catalogs.services import ServiceLake
from integration_tests.chaos.attempts.attempt import Stage
from integration_tests.chaos.aws.adversary import HostileAws
from integration_tests.chaos.rounds import ATTEMPTS, Round
from integration_tests.chaos.subjects import Subject, subject_of
from integration_tests.chaos.verdicts.report import Verdict
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.warm import SharedSpark, WarmLaunch

if TYPE_CHECKING:
    from pyspark import SparkContext

_context = multiprocessing.get_context("spawn")


def play(
    aws: HostileAws,
    lake: Lake,
    launch: WarmLaunch,
    folder: Path,
    seed: int,
    number: int,
    attempts: int = ATTEMPTS,
    spark: "SparkContext | None" = None,
) -> Verdict:
    """Play one round; whatever is raised is its verdict. `lake` is a new one, reached past the adversaries.

    `spark` is one more reader, if there is one.
    """
    started = time.monotonic()
    violation = ""
    subject = subject_of(number)
    with _with_catalog(subject, aws, lake) as (aws_, lake_):
        round_ = Round(Stage(lake_, subject.kind, aws_, launch, folder), subject, seed, number, attempts)
        try:
            round_.play()
            if spark is not None:
                round_.confirm(spark)
        except AssertionError as error:
            violation = str(error)
        except Exception:
            violation = traceback.format_exc()
    return Verdict(number, str(round_.subject), round_.tally, tuple(round_.log), violation, time.monotonic() - started)


@contextmanager
def _with_catalog(subject: Subject, aws: HostileAws, lake: Lake) -> Iterator[tuple[HostileAws, Lake]]:
    """Lend the account and the lake of a subject: those given, or a lake in a REST catalog behind adversaries."""
    if not subject.in_rest:
        yield aws, lake
        return
    ways = replace(glue(), authorization=SigV4("glue", secrets=_EveryKey()))
    with (
        ServiceLake(lake.endpoint_url, ways, {"type": "glue_rest", "warehouse": ways.warehouse}) as in_rest,
        HostileAws(in_rest.endpoint.endpoint_url) as hostile,
    ):
        yield hostile, in_rest


class _EveryKey(dict[str, str]):
    """The secrets of all attempts, each of which has a key of its own."""

    def __contains__(self, _: object) -> bool:
        return True

    def __missing__(self, _: str) -> str:
        return SECRET_ACCESS_KEY


def _work(seed: int, numbers: "Queue[int | None]", verdicts: "Queue[Verdict | None]") -> None:
    """Play the rounds that come, in an account and with a Spark of one's own."""
    # Spark's complaints about drivers that were killed are of no interest to who reads what this prints.
    sys.stderr = os.fdopen(os.dup(2), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        with AwsServer() as server, SharedSpark() as spark, HostileAws(server.endpoint_url) as aws:
            launch = WarmLaunch(spark.gateway)
            while (number := numbers.get()) is not None:
                with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
                    lake = Lake(server.endpoint_url)
                    verdicts.put(play(aws, lake, launch, Path(folder), seed, number, spark=spark.context))
    finally:
        verdicts.put(None)


def verdicts_of(seed: int, rounds: Iterator[int], jobs: int) -> Iterator[Verdict]:
    """Play rounds, `jobs` at a time, as they are asked for; yield verdicts as they come."""
    numbers: Queue[int | None] = _context.Queue()
    verdicts: Queue[Verdict | None] = _context.Queue()
    workers = [_context.Process(target=_work, args=(seed, numbers, verdicts)) for _ in range(jobs)]
    for worker in workers:
        worker.start()
        numbers.put(next(rounds, None))
    working = len(workers)
    while working:
        verdict = verdicts.get()
        if verdict is None:
            working -= 1
            continue
        numbers.put(next(rounds, None))
        yield verdict
    for worker in workers:
        worker.join()
