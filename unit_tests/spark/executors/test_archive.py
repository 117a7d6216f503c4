"""The archive for executors: the same bytes for the same files, kept where nobody else can change it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from time import time_ns

import pytest

from destination_datalake.spark.executors.archive import packed
from destination_datalake.spark.executors.contents import Contents, PackedFile
from destination_datalake.spark.executors.python import MINOR_VERSION, WORKER_ENVIRONMENT


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder for what can be made again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "destination-datalake"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def content(folder: Path, text: str = "x = 1\n", fingerprint: str = "0123456789abcdef") -> Contents:
    """A package of one module."""
    folder.mkdir(exist_ok=True)
    (folder / "module.py").write_text(text)
    return Contents((PackedFile("lake/module.py", folder / "module.py"),), fingerprint)


def test_the_archive_has_the_launcher_and_the_packages(tmp_path: Path, scratch: Path, cache: Path) -> None:
    made = packed(content(tmp_path / "a"), scratch)

    assert made.path == cache / "executors-0123456789abcdef.tar.gz"
    assert made.bytes == made.path.stat().st_size
    with tarfile.open(made.path) as tar:
        assert [(member.name, member.mode) for member in tar] == [
            ("bin/python", 0o755),
            ("packages/lake/module.py", 0o644),
        ]


def test_the_same_files_make_the_same_bytes_wherever_and_whenever(tmp_path: Path, scratch: Path) -> None:
    first = packed(content(tmp_path / "a", fingerprint="1" * 16), scratch)
    later = content(tmp_path / "b", fingerprint="2" * 16)
    os.utime(later.files[0].source, (1, 1))
    second = packed(later, scratch)

    assert first.path.read_bytes() == second.path.read_bytes()


def test_an_archive_is_built_once(tmp_path: Path, scratch: Path) -> None:
    built = packed(content(tmp_path / "a"), scratch).path
    first = built.stat().st_ino

    assert packed(content(tmp_path / "a", "never read"), scratch).path.stat().st_ino == first


def test_an_archive_that_others_could_have_changed_is_built_again(tmp_path: Path, scratch: Path) -> None:
    path = packed(content(tmp_path / "a"), scratch).path
    path.write_bytes(b"code of somebody else")
    path.chmod(0o666)

    assert packed(content(tmp_path / "a"), scratch).path.read_bytes() != b"code of somebody else"


def test_a_user_without_a_cache_gets_the_archive_among_temporary_files(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "file"
    nowhere.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere))

    assert packed(content(tmp_path / "a"), scratch).path.parent == scratch


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, scratch: Path, cache: Path) -> None:
    lost = Contents((PackedFile("lake/module.py", tmp_path / "missing"),), "0123456789abcdef")

    with pytest.raises(FileNotFoundError):
        packed(lost, scratch)

    assert [*cache.iterdir(), *scratch.iterdir()] == []


def test_archives_that_were_not_used_for_a_month_are_removed(tmp_path: Path, scratch: Path, cache: Path) -> None:
    old = packed(content(tmp_path / "a", fingerprint="1" * 16), scratch).path
    os.utime(old, (1, 1))

    packed(content(tmp_path / "a", fingerprint="2" * 16), scratch)

    assert [path.name for path in cache.iterdir()] == ["executors-2222222222222222.tar.gz"]


def test_of_many_archives_those_used_last_are_kept(tmp_path: Path, scratch: Path, cache: Path) -> None:
    for number in range(10):
        os.utime(packed(content(tmp_path / "a", fingerprint=f"{number:016}"), scratch).path, ns=(0, time_ns() + number))

    assert sorted(path.name for path in cache.iterdir()) == [f"executors-{n:016}.tar.gz" for n in range(2, 10)]


@pytest.fixture
def launcher(tmp_path: Path, scratch: Path) -> Path:
    """The archive's launcher, as unpacked in a folder whose name has a space."""
    folder = tmp_path / "work dir" / "destination-datalake"
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", packed(content(tmp_path / "a"), scratch).path, "-C", folder], check=True)
    return folder / "bin" / "python"


def started(launcher: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [str(launcher), "-c", "import lake.module, sys; print('%d.%d' % sys.version_info[:2], lake.__path__)"]
    environment = {"PATH": str(folder), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def pythons(folder: Path, **targets: str) -> Path:
    """A folder of commands for PATH: each a script that runs `target`."""
    folder.mkdir()
    for name, target in {"dirname": "/usr/bin/dirname", **targets}.items():
        command = folder / name.replace("_", ".")
        command.write_text(f'#!/bin/sh\nexec {target} "$@"\n')
        command.chmod(0o755)
    return folder


PYTHON = shlex.quote(sys.executable)

NEWER = "/bin/sh -c 'exit 1' --"
"""Stands for a Python of another version: it fails the test of its version."""


@pytest.mark.parametrize(
    "found",
    [
        {f"python{MINOR_VERSION.replace('.', '_')}": PYTHON},
        {"python3": PYTHON},
        {"python3": NEWER, "python": PYTHON},
    ],
)
def test_the_launcher_finds_the_executor_s_python_of_this_version(
    tmp_path: Path, launcher: Path, found: dict[str, str]
) -> None:
    ended = started(launcher, pythons(tmp_path / "commands", **found))

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(MINOR_VERSION)
    assert "work dir/destination-datalake/packages/lake" in ended.stdout


def test_the_launcher_takes_the_python_that_the_cluster_s_administrators_have_set(
    tmp_path: Path, launcher: Path
) -> None:
    ended = started(launcher, pythons(tmp_path / "commands", python3=NEWER), PYSPARK_PYTHON=sys.executable)

    assert ended.returncode == 0, ended.stderr


def test_the_launcher_sets_variables_that_the_cluster_has_not(tmp_path: Path, launcher: Path) -> None:
    variables = "$MIMALLOC_PURGE_DELAY $MALLOC_TRIM_THRESHOLD_"
    show = f"""/bin/sh -c 'case "$*" in *sys.exit*) exit 0 ;; esac; echo {variables}' --"""

    ended = started(launcher, pythons(tmp_path / "commands", python3=show), MIMALLOC_PURGE_DELAY="7")

    assert ended.stdout == f"7 {WORKER_ENVIRONMENT['MALLOC_TRIM_THRESHOLD_']}\n"


def test_without_a_python_of_this_version_another_one_says_so_to_spark(tmp_path: Path, launcher: Path) -> None:
    other = """/bin/sh -c 'case "$*" in *sys.exit*) exit 1 ;; esac; echo another' --"""

    ended = started(launcher, pythons(tmp_path / "commands", python3=other))

    assert ended.stdout == "another\n", ended.stderr


def test_without_any_python_the_shell_says_that_there_is_none(tmp_path: Path, launcher: Path) -> None:
    ended = started(launcher, pythons(tmp_path / "commands"))

    assert ended.returncode == 127
    assert "python3: not found" in ended.stderr
