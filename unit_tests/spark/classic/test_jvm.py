"""Spark's JVM: what of its start and end needs no Java."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.spark.classic.jvm import Jvm, _log, _properties_file


def test_a_jvm_that_was_not_launched_has_no_exit_code_and_no_output(tmp_path: Path) -> None:
    jvm = Jvm(tmp_path)

    assert (jvm.exit_code, jvm.output()) == (None, [])
    jvm.wait_for_exit()
    jvm.kill()


def test_kill_ends_processes_that_name_the_scratch_folder_and_their_children(tmp_path: Path) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    command = [sys.executable, "-c", child]
    with (
        subprocess.Popen([*command, f"--scratch={tmp_path}"]) as starting,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other_process,
    ):
        while not (family := psutil.Process(starting.pid).children()):
            time.sleep(0.01)

        Jvm(tmp_path).kill()

        assert starting.wait(10) == -9
        assert psutil.wait_procs(family, 10)[1] == []
        assert other_process.poll() is None
        other_process.communicate(b"\n")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("local[*]", "local\\u005b\\u002a\\u005d"),
        ("a=b: c\\\n", "a\\u003db\\u003a\\u0020c\\u005c\\u000a"),
        ("é", "\\u00e9"),
    ],
)
def test_properties_are_written_as_java_reads_them(value: str, written: str) -> None:
    assert _properties_file({"spark.key": value}) == f"spark.key={written}\n"


@given(st.text())
def test_every_property_is_one_line_of_ascii_without_whitespace(value: str) -> None:
    line = _properties_file({"key": value})

    assert line.isascii()
    assert len(line.split()) == 1


def test_only_a_lost_executor_is_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    lost = "12:00:01 ERROR TaskSchedulerImpl: Lost executor 0 on 10.0.0.2: Remote RPC client disassociated."

    for line in ("12:00:00 INFO StandaloneAppClient: Executor added", lost):
        _log(line)

    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "Spark lost executor 0 on 10.0.0.2 (Remote RPC client disassociated). Spark reruns the tasks of this executor "
        "on other executors."
    ]


def test_properties_file_is_only_readable_by_its_user_from_its_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile function looks at the file before and after every call that creates or writes it."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))  # Without a launcher, `submit` fails after it has written the file.
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "")  # `submit` sets it.
    file = tmp_path / "spark.properties"
    states = set[tuple[str, bool]]()

    def look(*_: object) -> None:
        with suppress(FileNotFoundError):
            states.add((stat.filemode(file.stat().st_mode), file.stat().st_size > 0))

    umask = os.umask(0)
    sys.setprofile(look)
    try:
        with pytest.raises(FileNotFoundError, match="spark-submit"):
            Jvm(tmp_path).submit({"spark.secret": "s3cr3t"})
    finally:
        sys.setprofile(None)
        os.umask(umask)

    assert states == {("-rw-------", False), ("-rw-------", True)}
    assert not file.exists()
