"""What holds between the files of this repository: versions, the image, the platform's metadata, the scripts."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parent.parent
ENTRYPOINT = "/opt/destination-datalake/bin/destination-datalake"


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(text("pyproject.toml"))["project"]
    return found


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text("metadata.yaml"))["data"]
    return found


def dockerfile_stages() -> list[list[tuple[str, str]]]:
    """The Dockerfile's instructions with their arguments, a list for each FROM; what precedes the first is left out."""
    joined = re.sub(r"\\\n\s*", "", text("Dockerfile"))
    stages: list[list[tuple[str, str]]] = []
    for line in joined.splitlines():
        if not line or line.startswith("#"):
            continue
        instruction, _, argument = line.partition(" ")
        if instruction == "FROM":
            stages.append([])
        if stages:
            stages[-1].append((instruction, argument))
    return stages


def arguments(stage: list[tuple[str, str]], instruction: str) -> list[str]:
    return [argument for name, argument in stage if name == instruction]


# --- one version, one name, one licence ------------------------------------------------------------------------------


def test_every_file_that_names_the_version_names_the_same(project: dict[str, Any], metadata: dict[str, Any]) -> None:
    newest_in_changelog = re.search(r"^## \[([^]]+)]", text("CHANGELOG.md"), re.MULTILINE)
    image_label = re.search(r'^LABEL io\.airbyte\.version="([^"]+)"', text("Dockerfile"), re.MULTILINE)

    assert newest_in_changelog is not None
    assert image_label is not None
    assert {
        "metadata.yaml": metadata["dockerImageTag"],
        "CHANGELOG.md": newest_in_changelog[1],
        "Dockerfile": image_label[1],
    } == dict.fromkeys(("metadata.yaml", "CHANGELOG.md", "Dockerfile"), project["version"])


def test_the_licence_is_the_same_for_python_and_for_airbyte(project: dict[str, Any], metadata: dict[str, Any]) -> None:
    assert project["license"] == metadata["license"] == "MIT"
    assert text("LICENSE").startswith("MIT License")


def test_the_console_script_has_the_name_of_the_image(project: dict[str, Any], metadata: dict[str, Any]) -> None:
    assert project["name"] == metadata["dockerRepository"].rpartition("/")[2] == Path(ENTRYPOINT).name
    assert project["name"] in project["scripts"]


def test_the_documentation_has_one_address(metadata: dict[str, Any]) -> None:
    spec = json.loads(text("destination_datalake/spec.json"))

    assert spec["documentationUrl"] == metadata["documentationUrl"]
    assert spec["documentationUrl"].startswith("https://")


# --- what the platform reads ------------------------------------------------------------------------------------------


def test_the_platform_sees_an_alpha_data_lake_destination_that_supports_refreshes(metadata: dict[str, Any]) -> None:
    expected = {
        "connectorType": "destination",
        "connectorSubtype": "datalake",
        "releaseStage": "alpha",
        "supportsRefreshes": True,
    }

    assert {key: metadata[key] for key in expected} == expected
    assert {"language:python", "cdk:python"} <= set(metadata["tags"])
    assert all(re.fullmatch(r"[a-z]+:[a-z]+", tag) for tag in metadata["tags"])


@pytest.mark.parametrize("key", ["name", "githubIssueLabel", "documentationUrl", "dockerRepository", "supportLevel"])
def test_metadata_has_every_text_that_the_registry_asks_for(metadata: dict[str, Any], key: str) -> None:
    assert metadata[key]


def test_the_definition_id_is_a_uuid_and_never_changes(metadata: dict[str, Any]) -> None:
    assert uuid.UUID(metadata["definitionId"]) == uuid.UUID("acf5d236-bf20-4f77-86ce-f25a3fca208b")


@pytest.mark.parametrize("job", ["check_connection", "sync"])
def test_a_job_asks_for_memory_within_its_limit(metadata: dict[str, Any], job: str) -> None:
    requirements = {
        entry["jobType"]: entry["resourceRequirements"] for entry in metadata["resourceRequirements"]["jobSpecific"]
    }[job]

    assert 0 < mebibytes(requirements["memory_request"]) <= mebibytes(requirements["memory_limit"])


def mebibytes(quantity: str) -> int:
    units = {"Mi": 1, "Gi": 1024}
    return int(quantity[:-2]) * units[quantity[-2:]]


def test_the_platform_lets_the_connector_reach_aws_and_the_configured_endpoint(metadata: dict[str, Any]) -> None:
    assert {"*.amazonaws.com", "${endpoint_url}"} <= set(metadata["allowedHosts"]["hosts"])


def test_the_icon_is_a_square_drawing(metadata: dict[str, Any]) -> None:
    icon = ElementTree.fromstring(text(metadata["icon"]))
    _, _, width, height = icon.attrib["viewBox"].split()

    assert icon.tag == "{http://www.w3.org/2000/svg}svg"
    assert width == height
    assert icon.attrib["width"] == icon.attrib["height"]


# --- the image --------------------------------------------------------------------------------------------------------


def test_the_image_starts_the_connector_by_the_absolute_path_that_it_tells_the_platform() -> None:
    image = dockerfile_stages()[-1]

    assert [json.loads(argument) for argument in arguments(image, "ENTRYPOINT")] == [[ENTRYPOINT]]
    assert f'AIRBYTE_ENTRYPOINT="{ENTRYPOINT}"' in arguments(image, "ENV")
    assert not arguments(image, "CMD")


def test_the_image_runs_as_the_user_airbyte_in_a_directory_that_it_owns() -> None:
    image = dockerfile_stages()[-1]
    create_user = next(argument for argument in arguments(image, "RUN") if "useradd" in argument)

    # By its number: a cluster that admits no root (`runAsNonRoot`) cannot look names up.
    assert arguments(image, "USER") == ["1000:1000"]
    assert "--uid 1000" in create_user
    assert f"chown airbyte:airbyte /airbyte {arguments(image, 'WORKDIR')[-1]}" in create_user
    assert [name for name, _ in image if name in ("USER", "RUN")][-1] == "USER", "nothing is installed as airbyte"


def test_the_image_holds_what_the_lock_file_names_without_the_dev_tools() -> None:
    environment, image = dockerfile_stages()
    syncs = [argument for argument in arguments(environment, "RUN") if "uv sync" in argument]

    assert syncs
    for sync in syncs:
        assert {"--frozen", "--no-dev"} <= set(sync.split())
    assert any("uv.lock" in argument.split() for argument in arguments(environment, "COPY"))
    assert arguments(image, "COPY") == ["--from=environment /opt/destination-datalake /opt/destination-datalake"]
    assert not [argument for argument in arguments(image, "RUN") if "pip install" in argument]


def test_the_image_leaves_out_what_the_list_names_and_has_byte_code_of_the_standard_library() -> None:
    environment, image = dockerfile_stages()
    runs = [argument for name, argument in environment if name == "RUN"]

    assert "image/trim.py /opt/destination-datalake/lib/python3.11/site-packages" in runs[-1]
    assert any("compileall" in argument for argument in arguments(image, "RUN"))


def test_both_stages_share_a_base_image_that_is_pinned_and_can_be_replaced() -> None:
    bases = {argument.split()[0] for stage in dockerfile_stages() for argument in arguments(stage, "FROM")}
    default = re.search(r"^ARG BASE_IMAGE=(\S+)$", text("Dockerfile"), re.MULTILINE)

    assert bases == {"${BASE_IMAGE}"}
    assert default is not None
    assert re.fullmatch(r"docker\.io/library/python:3\.11\.\d+-slim-bookworm", default[1])


def test_the_image_has_a_headless_java_17_before_it_makes_the_class_data_archive() -> None:
    runs = arguments(dockerfile_stages()[-1], "RUN")
    java = next(index for index, run in enumerate(runs) if "openjdk-17-jre-headless" in run)
    archive = next(index for index, run in enumerate(runs) if "destination_datalake.spark.jvm_archive" in run)

    assert java < archive


def test_everything_the_image_copies_is_let_into_its_build() -> None:
    let_in = {line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")}
    copied = {source for argument in arguments(dockerfile_stages()[0], "COPY") for source in argument.split()[:-1]}

    assert copied == let_in


# --- the documentation ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def connection_specification() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text("destination_datalake/spec.json"))["connectionSpecification"]
    return found


def test_the_readme_explains_every_option_and_no_other(connection_specification: dict[str, Any]) -> None:
    options = section("## Options")
    explained = re.findall(r"^\| `(\w+)` \|", options.partition("`credentials` is one of:")[0], re.MULTILINE)

    assert sorted(explained) == sorted(connection_specification["properties"])


def test_the_readme_says_which_options_are_required(connection_specification: dict[str, Any]) -> None:
    explained = re.findall(r"^\| `(\w+)` \|", section("## Options"), re.MULTILINE)

    assert "Only the first four are required." in section("## Options")
    assert set(explained[:4]) == set(connection_specification["required"])


def test_the_configuration_in_the_readme_is_one_the_platform_accepts(connection_specification: dict[str, Any]) -> None:
    example = re.search(r"```json\n(.*?)```", section("## A sync into your own bucket"), re.DOTALL)

    assert example is not None
    jsonschema.validate(json.loads(example[1]), connection_specification)


def test_the_readme_says_why_each_dependency_is_there(project: dict[str, Any]) -> None:
    explained = re.findall(r"^\| (\w[\w\[\]-]*) \| ", section("## The code"), re.MULTILINE)
    needed = [re.split(r"[<>=]", dependency)[0] for dependency in project["dependencies"]]

    assert sorted(set(explained) - {"where", "dependency"}) == sorted(needed)


def test_the_readme_uses_the_image_of_this_version(project: dict[str, Any]) -> None:
    versions = re.findall(r"destination-datalake:([\w.]+)", text("README.md"))

    assert set(versions) == {project["version"]}


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_every_link_within_the_repository_leads_somewhere(page: str) -> None:
    links = re.findall(r"]\((?!https?:|#)([^)#]+)", text(page))

    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "docs/rooms.md"])
def test_every_file_of_the_connector_that_a_page_names_is_there(page: str) -> None:
    named = re.findall(r"`((?:\w+/)*(?:\w+\.py|spec\.json|[a-z]\w*/))`", text(page))
    homes = (ROOT, ROOT / "destination_datalake", ROOT / "integration_tests")

    assert [name for name in named if not any((home / name).exists() for home in homes)] == []


def test_the_index_of_the_documentation_names_every_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}

    assert set(re.findall(r"]\((\w+\.md)\)", text("docs/index.md"))) == pages


def test_the_policy_to_copy_is_valid_json() -> None:
    policy = re.search(r"```json\n(.*?)```", text("docs/permissions.md"), re.DOTALL)

    assert policy is not None
    assert {statement["Effect"] for statement in json.loads(policy[1])["Statement"]} == {"Allow"}


def section(heading: str) -> str:
    """The README from a heading to the next of its level."""
    _, found, rest = text("README.md").partition(f"\n{heading}\n")
    assert found, heading
    return rest.partition("\n## ")[0]


# --- make and .ci/run -------------------------------------------------------------------------------------------------


def test_make_and_the_image_use_the_same_uv() -> None:
    in_makefile = re.search(r"^UV_VERSION := (\S+)$", text("Makefile"), re.MULTILINE)
    in_dockerfile = re.search(r"^ARG UV_VERSION=(\S+)$", text("Dockerfile"), re.MULTILINE)

    assert in_makefile is not None
    assert in_dockerfile is not None
    assert in_makefile[1] == in_dockerfile[1]


@pytest.mark.parametrize(
    "target",
    [
        "setup",
        "demo",
        "test",
        "test-unit",
        "conformance",
        "coverage",
        "lint",
        "types",
        "bench",
        "archive",
        "clean",
        "help",
    ],
)
def test_make_without_a_target_lists_every_target(target: str) -> None:
    listing = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True, env=plain_environment())

    assert re.search(rf"^  make {target} +\S", listing.stdout, re.MULTILINE)


def plain_environment() -> dict[str, str]:
    """This process's environment without what an outer make hands to an inner one."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


@pytest.mark.parametrize("script", [".ci/run", "scripts/setup.sh", "scripts/jdk.sh", "scripts/apt-package.sh"])
def test_a_script_can_be_run_and_stops_at_its_first_failure(script: str) -> None:
    assert (ROOT / script).stat().st_mode & stat.S_IXUSR
    assert "set -euo pipefail" in text(script)


def test_ci_runs_tests_then_lint_types_coverage_and_the_acceptance_suite() -> None:
    commands = [line.strip() for line in text(".ci/run").splitlines()]
    steps = [line for line in commands if line.startswith(("make ", ".venv/bin/pytest "))]

    assert [step.split()[1] for step in steps] == ["test", "lint", "types", "coverage", "integration_tests/acceptance"]
    assert "--durations" in steps[0], "which tests are slow is in the log of every run"


# --- the scripts' own behaviour, on machines made of stand-in commands ------------------------------------------------


class Machine:
    """A PATH with the shell's ordinary tools and only those other commands that a test puts there."""

    def __init__(self, directory: Path) -> None:
        self.commands = directory / "bin"
        self.commands.mkdir()
        self.log = directory / "log"
        self.log.touch()
        for tool in ("bash", "cat", "chmod", "cut", "dirname", "env", "head", "ln", "sed", "sh"):
            found = shutil.which(tool)
            assert found is not None, tool
            (self.commands / tool).symlink_to(found)
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
    assert machine.log.read_text() == "", "nothing is installed for somebody who is not root"


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


def test_the_python_that_runs_the_tests_is_one_that_setup_accepts(project: dict[str, Any]) -> None:
    assert project["requires-python"] == ">=3.11,<3.14", "scripts/setup.sh looks for these"
    assert (3, 11) <= sys.version_info[:2] < (3, 14)
