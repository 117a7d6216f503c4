"""Which Java is found, and what is reported of one that Spark could not run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from destination_datalake.spark.java import Java, JavaUnusable, find_java


def put_java(folder: Path, settings: str) -> str:
    """A `java` that prints these settings, and where it is."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '{settings}' >&2\n")
    command.chmod(0o755)
    return str(command)


@pytest.mark.parametrize(("says", "version"), [("17", 17), ("21", 21)])
def test_java_home_takes_precedence_over_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, version: int
) -> None:
    command = put_java(tmp_path / "home", f"    java.specification.version = {says}")
    put_java(tmp_path / "other", "    java.specification.version = 25")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))

    assert find_java() == Java(command, version)


def test_path_is_searched_without_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = put_java(tmp_path, "    java.specification.version = 25")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    assert find_java() == Java(command, 25)


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("    java.specification.version = 11", "is Java 11"),
        ("    java.specification.version = 1.8", "is Java 8"),
        ("who are you", "does not say its version"),
    ],
)
def test_unusable_java_is_reported_with_its_command_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, words: str
) -> None:
    command = put_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(JavaUnusable, match=words) as raised:
        find_java()

    assert command in str(raised.value)
    assert "17 or newer" in str(raised.value)


@pytest.mark.parametrize("home", ["/nowhere", ""])
def test_missing_java_is_reported_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(JavaUnusable, match="JAVA_HOME"):
        find_java()
