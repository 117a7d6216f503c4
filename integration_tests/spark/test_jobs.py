"""Jobs without a sync: attempts at tasks whose workers die, and the exchange."""

from __future__ import annotations

import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest

CRASH = """
import ctypes, os, signal, sys
from pathlib import Path
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings
from destination_datalake.spark.backend import JobFailed

def work(tasks):
    for name, signal_number, times in tasks:
        tried = Path(name)
        so_far = len(tried.read_text()) if tried.exists() else 0
        tried.write_text("x" * (so_far + 1))
        if so_far < times:
            os.kill(os.getpid(), signal_number)
        yield so_far + 1

folder = Path(sys.argv[1])
engine = Engine.start(ClassicBackend(ClassicSettings("local[1]", {})))
print(engine.run(work, [(str(folder / "killed once"), signal.SIGKILL, 1), (str(folder / "sound"), 0, 0)]))
try:
    engine.run(work, [(str(folder / "crashes"), signal.SIGSEGV, 100)])
except JobFailed as error:
    print("Segmentation fault" in str(error.__cause__.java_exception))
print((folder / "crashes").read_text(), engine.error)
engine.stop()
"""


@pytest.mark.slow
def test_task_whose_worker_dies_has_three_attempts_and_then_reports_the_crash(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path)], capture_output=True, text=True, timeout=120)

    assert (ended.stdout, ended.returncode) == ("[2, 1]\nTrue\nxxx None\n", 0), ended.stderr


EXCHANGE = """
import struct
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings

def produce(tasks):
    for task in tasks:
        for number in range(task, task + 5):
            yield number % 3, struct.pack(">q", number)

def consume(partition, payloads):
    yield partition, sorted(struct.unpack(">q", payload)[0] for payload in payloads)

engine = Engine.start(ClassicBackend(ClassicSettings("local[2]", {})))
print(sorted(engine.exchange(produce, [0, 10, 100], consume, 4)))
print(engine.progress())
engine.stop()
"""


@pytest.mark.slow
def test_exchange_brings_all_payloads_of_a_partition_to_one_consumer() -> None:
    # Given three tasks that make payloads for three of four partitions, when they are exchanged
    ended = subprocess.run([sys.executable, "-c", EXCHANGE], capture_output=True, text=True, timeout=120)

    # Then each consumer has all of its partition, and no partition without payloads is consumed
    assert ended.returncode == 0, ended.stderr
    consumed, progress = ended.stdout.splitlines()
    sent = [number for task in (0, 10, 100) for number in range(task, task + 5)]
    assert literal_eval(consumed) == [(part, [n for n in sent if n % 3 == part]) for part in range(3)]
    assert progress == "JobsProgress(running=0, waiting=0, ended=0)"
