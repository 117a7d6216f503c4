"""The Dockerfile: what it installs, whom it runs as, what it leaves out."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib

from docs.generator.project import packages
from unit_tests.repository.files import ROOT, text

ENTRYPOINT = "/opt/destination-datalake/bin/destination-datalake"


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
    pinned = re.fullmatch(r"docker\.io/library/python:3\.11\.\d+-slim-bookworm(@sha256:[0-9a-f]{64})?", default[1])
    assert pinned is not None
    # What the page says is so: whoever adds the digest corrects the page.
    assert ("its tag; not yet by its digest" in text("docs/code/dependencies.md")) == (pinned[1] is None)


def test_the_image_has_a_headless_java_17_before_it_makes_the_class_data_archive() -> None:
    runs = arguments(dockerfile_stages()[-1], "RUN")
    java = next(index for index, run in enumerate(runs) if "openjdk-17-jre-headless" in run)
    archive = next(index for index, run in enumerate(runs) if "destination_datalake.spark.classic.jvm_archive" in run)

    assert java < archive


def test_everything_the_image_copies_is_let_into_its_build() -> None:
    let_in = {line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")}
    copied = {source for argument in arguments(dockerfile_stages()[0], "COPY") for source in argument.split()[:-1]}

    assert copied == let_in


def test_uv_is_installed_with_hashes_and_builds_the_connector_itself() -> None:
    (version,) = re.findall(r"^uv==(\S+) \\\n +--hash=sha256:[0-9a-f]{64}", text("scripts/uv.txt"), re.MULTILINE)
    installs = [
        line for file in ("scripts/setup.sh", "Dockerfile") for line in text(file).splitlines() if "pip install" in line
    ]

    assert len(installs) == 2
    assert all("--require-hashes -r " in line and "uv.txt" in line for line in installs)
    # uv takes this backend out of itself if the version is its own; another one it would download.
    assert tomllib.loads(text("pyproject.toml"))["build-system"] == {
        "requires": [f"uv_build=={version}"],
        "build-backend": "uv_build",
    }


def test_every_package_is_locked_with_hashes() -> None:
    locked = tomllib.loads(text("uv.lock"))["package"]

    unpinned = [
        package["name"]
        for package in locked
        if package["name"] != "destination-datalake"
        and not all("hash" in file for file in [*package.get("wheels", []), *filter(None, [package.get("sdist")])])
    ]
    assert unpinned == []


def test_the_image_has_a_bill_of_its_packages() -> None:
    (command,) = [run for run in arguments(dockerfile_stages()[0], "RUN") if "uv export" in run]
    words = shlex.split(command.rpartition("&& ")[2])
    words = [str(ROOT / ".uv/bin/uv"), *words[1 : words.index("--output-file")]]

    bill = json.loads(subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout)

    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    named = {component["name"] for component in bill["components"]}
    assert named >= {*packages()}
    assert named.isdisjoint({"pytest", "moto", "unidecode"})
