"""Executors that are killed or put to sleep at random during syncs with states, under the verdicts of `make chaos`.

What is drawn comes from the seed (`ARGS="--seed 17"`), which a failure names; how processes take turns does not.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import psutil
import pytest

from integration_tests.chaos.attempts.attempt import Attempt, Stage
from integration_tests.chaos.attempts.connection import Connection
from integration_tests.chaos.aws.adversary import Adversary, HostileAws
from integration_tests.chaos.verdicts.oracle import Oracle
from integration_tests.chaos.verdicts.reader import Reader
from integration_tests.cluster.doors import DOORS, Cluster
from integration_tests.cluster.harness.aws import send_to_all
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.launch import launch_command
from integration_tests.harness.table_kinds import TABLE_KINDS

ATTEMPTS = 3
MAX_FAULTS = 6
"""The number of faults in one attempt. Without a limit, a slow machine loses executors faster than tasks can end."""


@contextmanager
def reaper(random: Random, executors: Callable[[], list[psutil.Process]]) -> Iterator[list[str]]:
    """Kill executors at random times, or let them sleep for a while. Yield the list of these faults."""
    ended = threading.Event()
    done: list[str] = []

    def reap() -> None:
        while len(done) < MAX_FAULTS and not ended.wait(random.uniform(2, 8)):
            victims = executors()
            if not victims:
                continue
            victim = random.choice(victims)
            if random.random() < 0.6:
                done.append(f"kill {victim.pid}")
                send_to_all(victim, signal.SIGKILL)
                continue
            done.append(f"freeze {victim.pid}")
            send_to_all(victim, signal.SIGSTOP)
            ended.wait(random.uniform(1, 12))
            send_to_all(victim, signal.SIGCONT)

    thread = threading.Thread(target=reap, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("door", [DOORS[0], DOORS[2]], ids=lambda door: door.name, indirect=True)
def test_whatever_happens_to_executors_nothing_acknowledged_is_lost_or_twice(
    lake: Lake, cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--seed")
    spark = {**cluster.option, "executor_credentials": "session"}
    kind = replace(TABLE_KINDS[0], options={**TABLE_KINDS[0].options, "spark": spark})
    reader, oracle, connection = Reader(lake), Oracle(), Connection(str(seed), False, ({},))

    with HostileAws(lake.endpoint_url) as aws:
        stage = Stage(lake, kind, aws, launch_command, tmp_path)
        for number in range(ATTEMPTS):
            random = Random(f"{seed}/{number}")
            connection.look_ahead(random)
            order = connection.order(random, completes=True)
            with Attempt(stage, order, Adversary()) as attempt, reaper(random, cluster.executors) as done:
                attempt.feed_all()
                run = attempt.end()
            connection.remember(attempt)
            attempt.judge()

            oracle.after([attempt.effect()])
            seen = reader.sendings(connection.sent)
            assert oracle.see(seen), f"seed {seed}, {done}: {oracle.explain(seen)}\n{run.report()}"
            oracle.keep(seen)
