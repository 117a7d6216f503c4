"""Plays histories, some at a time, each in a process forked from one that has everything loaded."""

import gc
import logging
import multiprocessing
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from random import Random

from emulated_aws.extension import install
from moto import mock_aws

from integration_tests.chaos.attempts.attempt import Stage
from integration_tests.chaos.aws.adversary import Adversary
from integration_tests.chaos.histories.account import AccountInside, make_clients
from integration_tests.chaos.histories.subjects import TypedSubject, subject_of
from integration_tests.chaos.rounds import Round
from integration_tests.chaos.verdicts.report import Verdict
from integration_tests.chaos.verdicts.tally import Tally
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs import preloaded  # noqa: F401

ATTEMPTS = range(3, 7)
"""So many attempts a history has."""

_PATIENCE = 240.0
"""Seconds that a history may take on a busy machine."""

_context = multiprocessing.get_context("fork")


class LakeInside(Lake):
    """A lake in the account of this process."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]

    def config(self, **overrides: object) -> dict[str, object]:
        """Return a configuration of the connector for this lake, with these options set or replaced."""
        options = super().config(**overrides)
        del options["endpoint_url"]
        return options


class History(Round):
    """One table, from its first sync to its last."""

    def _happening(self, random: Random, remaining: int) -> Callable[[Random], None]:
        share = random.random()
        if remaining == 1 or share < 0.3:
            return self._calm
        if share < 0.62:
            return self._killed_at_the_end if random.random() < 0.4 else self._killed
        if share < 0.68:
            return self._faulty
        if remaining == 2:
            return self._calm
        if share < 0.74 and self._connection.has_ids:
            return self._rivalled
        if share < 0.9:
            return self._overtaken if self.subject.overwrites or random.random() < 0.7 else self._side_by_side
        return self._incomplete

    def _incomplete(self, random: Random) -> None:
        """The source fails, and the platform retries."""
        self._run_attempt(self._connection.order(random, completes=False), Adversary(), "calm, but the source fails")


def drawn(seed: int, number: int) -> TypedSubject:
    """Return the subject of a history."""
    return subject_of(f"{seed}/{number}")


def play(seed: int, number: int, folder: Path) -> Verdict:
    """Play one history in this process; whatever is raised is its verdict."""
    started = time.process_time()
    violation = ""
    history = None
    subject = drawn(seed, number)
    try:
        with mock_aws():
            account = AccountInside()
            stage = Stage(LakeInside(), subject.kind, account, account.launch, folder, account.launch)
            attempts = Random(f"{seed}/{number}/attempts").choice(ATTEMPTS)
            history = History(stage, subject, seed, number, attempts)
            history.play()
    except AssertionError as error:
        violation = str(error)
    except Exception:
        violation = traceback.format_exc()
    tally, log = (history.tally, tuple(history.log)) if history else (Tally(), ())
    return Verdict(number, str(subject), tally, log, violation, time.process_time() - started, True)


def _play(seed: int, number: int, verdict: Pipe) -> None:
    """Play one history, and end this process whatever threads it has."""
    if not os.environ.get("HISTORY_STDERR"):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    logging.getLogger().addHandler(logging.NullHandler())
    folder = tempfile.mkdtemp(prefix="history-")
    tempfile.tempdir = folder
    try:
        played = play(seed, number, Path(folder))
        # Before it is said: who hears it ends this process.
        shutil.rmtree(folder, ignore_errors=True)
        verdict.send(played)
    finally:
        os._exit(0)


def verdicts_of(seed: int, numbers: Iterator[int], jobs: int) -> Iterator[Verdict]:
    """Play histories, `jobs` at a time, as they are asked for; yield verdicts as they come."""
    install()
    make_clients()
    yield from _verdicts(seed, numbers, jobs)
    # What is frozen is never freed, of which DuckDB complains at the end.
    gc.unfreeze()


def _verdicts(seed: int, numbers: Iterator[int], jobs: int) -> Iterator[Verdict]:
    running: dict[Pipe, tuple[int, ForkProcess, float]] = {}
    more = True
    while more or running:
        while more and len(running) < jobs:
            number = next(numbers, None)
            if number is None:
                more = False
                break
            receiver, sender = _context.Pipe(duplex=False)
            process = _context.Process(target=_play, args=(seed, number, sender))
            process.start()
            sender.close()
            running[receiver] = (number, process, time.monotonic() + _PATIENCE)
        wait([*running], timeout=1)
        for pipe, (number, process, until) in [*running.items()]:
            verdict = Verdict(number, str(drawn(seed, number)), Tally(), (), "it does not end", _PATIENCE, True)
            if pipe.poll():
                with suppress(EOFError):
                    verdict = pipe.recv()
            elif time.monotonic() < until:
                continue
            del running[pipe]
            process.kill()
            process.join()
            yield verdict
