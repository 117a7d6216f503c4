"""The Dockerfile: what it installs, whom it runs as, what it leaves out."""

from __future__ import annotations

import json
import re

from unit_tests.repository.files import text

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
    assert re.fullmatch(r"docker\.io/library/python:3\.11\.\d+-slim-bookworm", default[1])


def test_the_image_has_a_headless_java_17_before_it_makes_the_class_data_archive() -> None:
    runs = arguments(dockerfile_stages()[-1], "RUN")
    java = next(index for index, run in enumerate(runs) if "openjdk-17-jre-headless" in run)
    archive = next(index for index, run in enumerate(runs) if "destination_datalake.spark.classic.jvm_archive" in run)

    assert java < archive


def test_everything_the_image_copies_is_let_into_its_build() -> None:
    let_in = {line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")}
    copied = {source for argument in arguments(dockerfile_stages()[0], "COPY") for source in argument.split()[:-1]}

    assert copied == let_in


def test_make_and_the_image_use_the_same_uv() -> None:
    in_makefile = re.search(r"^UV_VERSION := (\S+)$", text("Makefile"), re.MULTILINE)
    in_dockerfile = re.search(r"^ARG UV_VERSION=(\S+)$", text("Dockerfile"), re.MULTILINE)

    assert in_makefile is not None
    assert in_dockerfile is not None
    assert in_makefile[1] == in_dockerfile[1]
