"""The engine without a sync: its start, its jobs, its failures, and that its end leaves no process and no file."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from ast import literal_eval
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

START_AND_STOP = """
import sys, time
import psutil
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings

backend = ClassicBackend(ClassicSettings("local[1]", {}))
backend.launch()
engine = Engine.start(backend)
time.sleep(float(sys.argv[1]))
engine.stop()

def lives(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

living = [child for child in psutil.Process().children(recursive=True) if lives(child)]
sys.exit(f"still running: {living}" if living else 0)
"""


@pytest.mark.share(1)
@pytest.mark.parametrize("seconds", [0, 0.1, 0.3, 0.6, 1, 1.5, 2.5])
def test_engine_stopped_while_starting_leaves_no_process_and_no_file(tmp_path: Path, seconds: float) -> None:
    # Given a Spark that has been starting for some moments
    command = [sys.executable, "-c", START_AND_STOP, str(seconds)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}

    # When it is stopped
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    # Then nothing is left of it, and no error of the interrupted start is printed
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


LOADED_MODULES = """
import sys
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings
from destination_datalake.spark.classic.pyspark_internals import import_arrow

def loaded(_):
    import pyspark
    slow = {"pandas", "pyspark.testing"} & set(sys.modules)
    return (pyspark.__file__, sorted(slow), "destination_datalake.files.encode" in sys.modules, "boto3" in sys.modules)

backend = ClassicBackend(ClassicSettings("local[1]", {}))
if sys.argv[1] == "forked":
    backend.launch()
engine = Engine.start(backend)
import_arrow()
engine.parallelism()
context = engine._backend.context
print(loaded(None))
print(context.parallelize([None], 1).map(loaded).collect()[0])
engine.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("daemon", ["forked", "Spark's own"])
def test_driver_and_workers_do_not_import_pandas_and_workers_have_the_encoder(daemon: str) -> None:
    # Given that PySpark would load pandas in both, and compile itself out of a zip file in the workers
    installed = find_spec("pyspark")
    assert installed is not None

    # When Spark has started
    command = [sys.executable, "-c", LOADED_MODULES, daemon]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)

    # Then pandas is in neither, and the workers have the installed PySpark, the encoder and the client of S3
    assert ended.returncode == 0, ended.stderr
    driver, worker = map(literal_eval, ended.stdout.splitlines())
    assert driver[:2] == (installed.origin, [])
    assert worker == (installed.origin, [], True, True)


STARTED = """
import os, signal, sys, time
import psutil
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings

backend = ClassicBackend(ClassicSettings("local[1]", {}))
backend.launch()
engine = Engine.start(backend)

def facts(_):
    files = sorted({file.path for file in psutil.Process().open_files()})
    return os.getpid(), os.getppid(), os.environ.get("MALLOC_TRIM_THRESHOLD_"), files

def run():
    return backend.context.parallelize([None], 1).map(facts).collect()[0]
"""

WORKS = (
    STARTED
    + """
engine.parallelism()
worker, daemon, variable, files = run()
theirs = [file for file in files if file.startswith(os.path.dirname(kept.name))]
print(daemon == backend._jvm.daemon, psutil.Process(daemon).ppid() == os.getpid(), variable, theirs)
os.kill(daemon, signal.SIGKILL)
os.kill(worker, signal.SIGKILL)
_, another, variable, _ = run()
print(another in (daemon, os.getpid()), psutil.Process(another).ppid() == os.getpid(), variable)
engine.stop()
"""
)


def test_workers_have_no_file_of_the_driver_and_are_spark_s_own_once_the_driver_s_fork_is_gone(tmp_path: Path) -> None:
    # Given a driver whose input, output and some file are open when it forks
    (tmp_path / "input").touch()
    code = f"kept = open({str(tmp_path / 'another')!r}, 'w')\n{WORKS}"
    with (tmp_path / "input").open() as stdin, (tmp_path / "output").open("w") as stdout:
        command = [sys.executable, "-c", code]
        subprocess.run(command, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, timeout=120, check=True)

    # Then its fork has forked the workers, which have none of them, and Spark's daemon does once the fork is killed
    assert (tmp_path / "output").read_text() == "True True 268435456 []\nFalse False 268435456\n"


IS_KILLED = (
    STARTED
    + """
if sys.argv[1] == "started":
    engine.parallelism()
    run()
time.sleep(float(sys.argv[2]))
print(*(process.pid for process in psutil.Process().children(recursive=True)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
)


@pytest.mark.parametrize(
    ("until", "seconds"), [("launched", 0), pytest.param("launched", 0.5, marks=pytest.mark.slow), ("started", 0)]
)
def test_killed_driver_leaves_no_process(until: str, seconds: float) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", IS_KILLED, until, str(seconds)], capture_output=True, text=True, timeout=120
    )

    assert killed.returncode == -9
    family = [int(pid) for pid in killed.stdout.split()]
    assert len(family) >= 2, "the JVM and the workers' daemon"
    deadline = time.monotonic() + 60
    while living := [pid for pid in family if _lives(pid)]:
        assert time.monotonic() < deadline, f"still running: {living}"
        time.sleep(0.1)


def _lives(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


START_FAILURE = """
import sys
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings
from destination_datalake.spark.backend import SparkFailed

engine = Engine.start(ClassicBackend(ClassicSettings(sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:]))))
try:
    engine.parallelism()
except SparkFailed as error:
    assert engine.error is error
    print(error.failure.type, error)
engine.stop()
"""

OLD_JAVA = "#!/bin/sh\necho '    java.specification.version = 11' >&2\nexit 1\n"


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start a Spark with this master and these settings, in a process of its own."""
    command = [sys.executable, "-c", START_FAILURE, *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "failure_type", "words"),
    [
        (("local[1]", "spark.driver.memory=abc"), "config_error", "Invalid maximum heap size: -Xmxabc"),
        (("local[1]", "spark.driver.memory=90000g"), "transient_error", "Could not reserve enough space"),
        (("local[1]", "spark.task.cpus=many"), "config_error", "The value 'many' in the config \"spark.task.cpus\""),
        (("local[1]", "spark.submit.deployMode=cluster"), "config_error", "Cluster deploy mode is not compatible"),
    ],
    ids=["heap", "memory", "setting", "deploy mode"],
)
def test_start_failure_quotes_the_first_error_of_spark(
    arguments: tuple[str, ...], failure_type: str, words: str
) -> None:
    ended = start(*arguments)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"{failure_type} Spark did not start"), ended.stdout
    assert words in ended.stdout


def test_start_failure_names_a_missing_or_old_java(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(OLD_JAVA)
    java.chmod(0o755)

    missing, old = start("local[1]", JAVA_HOME="/nowhere"), start("local[1]", JAVA_HOME=str(tmp_path))

    assert missing.stdout.startswith("config_error Spark did not start. Spark needs a Java runtime"), missing.stderr
    assert "is Java 11" in old.stdout
    assert old.stdout.startswith("config_error")


PROCESSES_OF_THE_JVM = """
import contextlib
import psutil
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings

conf = {"spark.hadoop.fs.s3a.secret.key": "hush-hush: = \\u00e9\\\\n"}
engine = Engine.start(ClassicBackend(ClassicSettings("local[1]", conf)))
engine.parallelism()
engine._backend.warm_up()
context = engine._backend.context
seen = {}
for process in psutil.Process().children(recursive=True):
    # Spark's start runs commands that may end while they are looked at.
    with contextlib.suppress(psutil.NoSuchProcess):
        seen[process.pid] = " ".join((*process.cmdline(), *process.environ().values()))
files = [each for each in engine._backend._scratch.rglob("*") if each.is_file() and "hush" in each.read_text("latin-1")]
is_seen = "hush" in "".join(seen.values()) or files != []
print(len(seen), is_seen, context.getConf().get("spark.hadoop.fs.s3a.secret.key"))
engine.stop()
"""


@pytest.mark.slow
def test_values_of_properties_are_on_no_command_line_in_no_environment_and_in_no_file() -> None:
    ended = subprocess.run([sys.executable, "-c", PROCESSES_OF_THE_JVM], capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stderr
    processes, is_seen, value = ended.stdout.split(" ", 2)
    assert int(processes) >= 2, "the JVM and a Python worker"
    assert (is_seen, value) == ("False", "hush-hush: = é\\n\n")


ASKED_BY_A_STRANGER = """
import socket, struct, sys
import psutil
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings

engine = Engine.start(ClassicBackend(ClassicSettings(sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:]))))
engine.parallelism()
engine._backend.warm_up()
context = engine._backend.context

# BlockTransferMessage OPEN_BLOCKS with an application, an executor, no blocks; in a frame of Spark's RPC requests.
words = b"".join(struct.pack(">i", len(word)) + word for word in (context.applicationId.encode(), b"driver"))
body = b"\\0" + words + struct.pack(">i", 0)
frame = struct.pack(">qbqi", 8 + 1 + 8 + 4 + len(body), 3, 1, len(body)) + body
ports = {
    each.laddr.port
    for process in [psutil.Process(engine._backend._jvm.process.pid)]
    for each in process.net_connections("tcp")
    if each.status == psutil.CONN_LISTEN
}
answers = []
for port in ports - {context._gateway.gateway_parameters.port}:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(frame)
        try:
            answers.append(connection.recv(9)[8:])
        except OSError:
            answers.append(b"")
print("answered" if b"\\4" in answers else "refused", len(answers))
engine.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("master", "conf", "outcome"),
    [
        ("local[1]", (), "refused"),
        ("local-cluster[1,1,1024]", (), "refused"),
        ("local[1]", ("spark.authenticate=false",), "answered"),
        ("local[1]", ("spark.network.crypto.enabled=true",), "refused"),
    ],
)
def test_a_process_without_the_secret_is_not_answered_by_the_driver_s_ports(
    master: str, conf: tuple[str, ...], outcome: str
) -> None:
    command = [sys.executable, "-c", ASKED_BY_A_STRANGER, master, *conf]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stderr
    answer, ports = ended.stdout.split()
    assert (answer, int(ports) >= 2) == (outcome, True)


REMOVED_VARIABLES = """
import os
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings

class Watched(type(os.environ)):
    removed = []

    def __delitem__(self, name):
        self.removed.append(name)
        super().__delitem__(name)

os.environ.pop("PYSPARK_SUBMIT_ARGS", None)
os.environ.__class__ = Watched
# Spark's own launcher is for whoever sets properties, and takes its arguments from the environment.
engine = Engine.start(ClassicBackend(ClassicSettings("local[1]", {"spark.ui.port": "4041"})))
engine.parallelism()
print(Watched.removed, os.environ["PYSPARK_SUBMIT_ARGS"])
engine.stop()
"""


@pytest.mark.slow
def test_start_removes_no_environment_variable() -> None:
    ended = subprocess.run([sys.executable, "-c", REMOVED_VARIABLES], capture_output=True, text=True, timeout=120)

    assert (ended.stdout, ended.returncode) == ("[] pyspark-shell\n", 0), ended.stderr


AS_UNKNOWN_USER = """
import os, pwd, sys
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings

try:
    sys.exit(f"{pwd.getpwuid(os.getuid())} is known")
except KeyError:
    pass
engine = Engine.start(ClassicBackend(ClassicSettings("local[1]", {})))
print(engine.parallelism())
engine.stop()
"""


@pytest.mark.slow
def test_engine_starts_for_a_user_whom_the_system_does_not_know() -> None:
    # A container may run as any number (`runAsUser`); a user namespace makes one here.
    stranger = ["unshare", "--user", "--map-user=54321", "--map-group=54321", "env", "-u", "HOME"]

    ended = subprocess.run(
        [*stranger, sys.executable, "-c", AS_UNKNOWN_USER], capture_output=True, text=True, timeout=120
    )

    assert (ended.stdout, ended.returncode) == ("1\n", 0), ended.stderr


OUT_OF_DESCRIPTORS = """
import contextlib, os, resource
import psutil
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings

engine = Engine.start(ClassicBackend(ClassicSettings("local[1]", {})))
engine.parallelism()
engine._backend.warm_up()
family = psutil.Process().children(recursive=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
taken = []
with contextlib.suppress(OSError):
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
engine.stop()
for descriptor in taken:
    os.close(descriptor)
gone, alive = psutil.wait_procs(family, timeout=30)
print(len(gone) >= 2, alive)
"""


@pytest.mark.slow
def test_engine_is_stopped_when_no_file_descriptor_is_left() -> None:
    ended = subprocess.run([sys.executable, "-c", OUT_OF_DESCRIPTORS], capture_output=True, text=True, timeout=120)

    assert (ended.stdout, ended.returncode) == ("True []\n", 0), ended.stderr


KILL_THE_JVM = """
import os, signal
import psutil
from destination_datalake.spark.engine import Engine
from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings

engine = Engine.start(ClassicBackend(ClassicSettings("local[1]", {})))
assert engine.error is None
engine.parallelism()
assert engine.error is None
jvm = engine._backend._jvm.process
jvm.kill()
jvm.wait()
print(engine.error.failure.type, engine.error)
engine.stop()
"""


def test_ended_jvm_is_reported_before_the_next_job() -> None:
    ended = subprocess.run([sys.executable, "-c", KILL_THE_JVM], capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("transient_error Spark's Java process ended (signal 9)")
    assert ended.stderr == ""


UNPICKLABLE = """
import threading
from pickle import PicklingError
from destination_datalake.spark.engine import start_local_engine

def work(tasks):
    yield from tasks

engine = start_local_engine()
try:
    engine.run(work, [threading.Lock()])
except Exception as error:
    print(type(error).__name__, error)
print(engine.error, engine.run(work, [1, 2]))
engine.stop()
"""


@pytest.mark.slow
def test_a_task_that_cannot_be_sent_to_spark_is_not_reported_as_the_end_of_spark() -> None:
    ended = subprocess.run([sys.executable, "-c", UNPICKLABLE], capture_output=True, text=True, timeout=120)

    assert "Spark ended" not in ended.stdout
    assert ended.stdout.endswith("None [1, 2]\n"), ended.stderr
