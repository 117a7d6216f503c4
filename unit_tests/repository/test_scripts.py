"""The set-up scripts, on machines made of stand-in commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from unit_tests.repository.files import ROOT, text


class Machine:
    """A PATH with the shell's ordinary tools and only those other commands that a test puts there."""

    def __init__(self, directory: Path) -> None:
        self.commands = directory / "bin"
        self.commands.mkdir()
        self.log = directory / "log"
        self.log.touch()
        for tool in ("bash", "cat", "chmod", "cut", "dirname", "env", "head", "ln", "sed", "sh"):
            path = shutil.which(tool)
            assert path is not None, tool
            (self.commands / tool).symlink_to(path)
        self.has("uname", "echo Linux")

    def has(self, command: str, script: str) -> None:
        path = self.commands / command
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def has_java(self, version: str, command: str = "java") -> None:
        self.has(command, f"""echo 'openjdk version "{version}" 2024-01-16' >&2""")

    def has_apt(self, *, offers: str, installs: str) -> None:
        """An apt-get that writes down what it was asked for, and whose installation runs `installs`."""
        self.has("apt-cache", f'[ "$2" = "{offers}" ]')
        self.has("apt-get", f'echo "$*" >> {self.log}\n[ "$1" = update ] || {{ {installs}; }}')

    def runs_as(self, user: int) -> None:
        self.has("id", f"echo {user}")

    def run(self, script: str, *given: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(ROOT / "scripts" / script), *given],
            env={"PATH": str(self.commands), **environment},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2", "17", "25-ea"])
def test_a_java_of_17_or_newer_is_taken_as_it_is(machine: Machine, version: str) -> None:
    machine.has_java(version)

    assert machine.run("jdk.sh").returncode == 0
    assert machine.log.read_text() == ""


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16.0.1"])
def test_an_older_java_stops_a_user_at_once_with_the_one_command_that_installs_a_newer(
    machine: Machine, version: str
) -> None:
    machine.has_java(version)
    machine.has_apt(offers="openjdk-17-jre-headless", installs="exit 1")
    machine.runs_as(1000)

    stopped = machine.run("jdk.sh")

    assert stopped.returncode == 1
    commands = [line.strip() for line in stopped.stderr.splitlines() if line.startswith("    ")]
    assert commands == [
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends openjdk-17-jre-headless"
    ]
    assert machine.log.read_text() == "", "nothing is installed for a user who is not root"


@pytest.mark.parametrize("package", ["openjdk-17-jre-headless", "openjdk-21-jre-headless"])
def test_root_on_debian_gets_the_headless_java_that_this_debian_has(machine: Machine, package: str) -> None:
    machine.has_java("17.0.9", command="java-of-the-package")
    machine.has_apt(offers=package, installs=f"ln -s java-of-the-package {machine.commands}/java")
    machine.runs_as(0)

    installed = machine.run("jdk.sh")

    assert installed.returncode == 0, installed.stderr
    assert machine.log.read_text().splitlines() == [
        "update -qq",
        f"install -y -qq --no-install-recommends {package}",
    ]


def test_a_system_without_apt_is_told_what_is_missing(machine: Machine) -> None:
    stopped = machine.run("jdk.sh")

    assert stopped.returncode == 1
    assert stopped.stderr.startswith("Java 17 or newer is missing.")


def test_an_old_java_home_is_named_because_spark_would_use_it(machine: Machine, tmp_path: Path) -> None:
    machine.has_java("17.0.15")

    stopped = machine.run("jdk.sh", JAVA_HOME=str(tmp_path / "old"))

    assert stopped.returncode == 1
    assert f"JAVA_HOME={tmp_path / 'old'}" in stopped.stderr
    assert "unset JAVA_HOME" in stopped.stderr


def test_setup_without_a_fitting_python_says_which_one_it_needs(machine: Machine) -> None:
    machine.has("python3", 'if [ "$1" = -V ]; then echo Python 3.9.2; else exit 1; fi')

    stopped = machine.run("setup.sh", "0.0.0")

    assert stopped.returncode == 1
    assert stopped.stderr.startswith("Python 3.11, 3.12 or 3.13 is needed")
    assert "Python 3.9.2" in stopped.stderr


@pytest.mark.parametrize("fails", ["pip", "uv"])
@pytest.mark.parametrize("system_certificates", ["", "1"])
def test_setup_that_a_proxy_s_certificate_stops_names_the_variable_for_it(
    machine: Machine, tmp_path: Path, fails: str, system_certificates: str
) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("setup.sh", "uv.txt"):
        shutil.copy(ROOT / "scripts" / name, scripts)
    version = (scripts / "uv.txt").read_text().partition("uv==")[2].split()[0]
    uv = {
        "pip": "",
        "uv": f"#!/bin/sh\n[ $1 = --version ] && echo uv {version} && exit\n[ $1 = sync ] && exit 2; exit 0\n",
    }
    for path, script in {"uv": uv[fails], "python": '#!/bin/sh\necho "cert: $PIP_CERT" >&2\nexit 1\n'}.items():
        machine.has(path, script)
    machine.has(
        "python3",
        f'case "$*" in *venv\\ .uv) mkdir -p .uv/bin; cp {machine.commands}/python .uv/bin ;; '
        f"*verify_paths*) echo /etc/ssl ;; *) echo {machine.commands}/python3 ;; esac",
    )
    for tool in ("cp", "mkdir", "rm"):
        (machine.commands / tool).symlink_to(str(shutil.which(tool)))
    if fails == "uv":
        (tmp_path / ".uv/bin").mkdir(parents=True)
        shutil.copy(machine.commands / "uv", tmp_path / ".uv/bin")

    stopped = machine.run(str(scripts / "setup.sh"), UV_SYSTEM_CERTS=system_certificates)

    assert stopped.returncode == 1
    assert ("Set UV_SYSTEM_CERTS=1 in the environment" in stopped.stderr) != bool(system_certificates)
    assert ("cert: /etc/ssl" in stopped.stderr) == (fails == "pip" and bool(system_certificates))


def test_the_python_that_runs_the_tests_is_one_that_setup_accepts(project: dict[str, Any]) -> None:
    assert project["requires-python"] == ">=3.11,<3.14", "scripts/setup.sh looks for these"
    assert (3, 11) <= sys.version_info[:2] < (3, 14)


def release_notes(version: str) -> subprocess.CompletedProcess[str]:
    script = str(ROOT / "scripts" / "release_notes.py")
    return subprocess.run([sys.executable, script, version], capture_output=True, text=True, check=False)


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    version = tomllib.loads(text("pyproject.toml"))["project"]["version"]

    notes = release_notes(version)

    assert notes.returncode == 0, notes.stderr
    assert f"[{version}]" not in notes.stdout
    assert notes.stdout.strip() in text("CHANGELOG.md")
    assert "### Added" in notes.stdout


def test_a_version_without_a_section_of_the_changelog_is_not_released() -> None:
    notes = release_notes("99.0.0")

    assert (notes.returncode, notes.stdout) == (1, "")
    assert "no section for version 99.0.0" in notes.stderr


def test_a_tag_of_a_version_releases_it_with_these_notes() -> None:
    workflow = yaml.safe_load(text(".github/workflows/release.yml"))
    [job] = workflow["jobs"].values()
    steps = [step["run"] for step in job["steps"] if "run" in step]

    assert workflow[True] == {"push": {"tags": ["v*"]}}, "YAML reads the key `on` as true"
    assert steps[0] == 'python scripts/release_notes.py "${GITHUB_REF_NAME#v}" > notes.md'
    assert "--notes-file notes.md" in steps[1]
