"""The properties that Spark is started with."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from destination_datalake.aws.access import mask_secrets
from destination_datalake.config.options import Config
from destination_datalake.spark.classic.settings import (
    ARCHIVE_VARIABLE,
    ClassicSettings,
    archive_path,
    local_master_with_attempts,
)
from unit_tests.config.examples import options


def test_properties_of_the_configuration_override_defaults(tmp_path: Path) -> None:
    properties = ClassicSettings("local[2]", {"spark.driver.memory": "2g", "spark.custom": "1"}).properties(tmp_path)

    assert properties["spark.driver.memory"] == "2g"
    assert properties["spark.custom"] == "1"
    assert properties["spark.ui.enabled"] == "false"


@pytest.mark.parametrize(("master", "speculation"), [("local[2]", "false"), ("spark://host:7077", "true")])
def test_speculation_is_a_choice_on_clusters_only(master: str, speculation: str, tmp_path: Path) -> None:
    properties = ClassicSettings(master, {"spark.speculation": "true"}).properties(tmp_path)

    assert properties["spark.speculation"] == speculation


@pytest.mark.parametrize(
    ("master", "conf", "authenticates"),
    [
        ("local[*]", {}, "true"),
        ("local-cluster[1,1,1024]", {}, "true"),
        ("yarn", {}, "true"),
        ("k8s://lake", {}, "true"),
        ("spark://lake:7077", {}, None),
        ("spark://lake:7077", {"spark.authenticate": "true"}, "true"),
        ("local[*]", {"spark.authenticate": "false"}, "false"),
    ],
)
def test_spark_authenticates_wherever_it_makes_its_own_secret(
    tmp_path: Path, master: str, conf: dict[str, str], authenticates: str | None
) -> None:
    first, second = (ClassicSettings(master, conf).properties(tmp_path) for _ in range(2))

    assert first.get("spark.authenticate") == authenticates
    secret = first.get("spark.authenticate.secret")
    assert (secret is not None) == master.startswith("local-cluster")
    if secret is not None:
        assert secret != second["spark.authenticate.secret"]
        assert mask_secrets(f"= {secret}") == "= ****"


@pytest.mark.parametrize(("master", "address"), [("local[*]", "127.0.0.1"), ("spark://lake:7077", None)])
def test_only_a_local_driver_is_bound_to_the_loopback_address(tmp_path: Path, master: str, address: str | None) -> None:
    properties = ClassicSettings(master, {}).properties(tmp_path)

    assert properties.get("spark.driver.host") == properties.get("spark.driver.bindAddress") == address


@pytest.mark.parametrize(
    ("master", "conf", "name"),
    [
        ("local[*]", {}, "localhost"),
        ("local-cluster[1,1,1024]", {}, "localhost"),
        ("spark://lake:7077", {}, None),
        ("k8s://lake", {"spark.driver.host": "airbyte.jobs"}, "airbyte.jobs"),
    ],
)
def test_remote_executors_do_not_call_localhost(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], name: str | None
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_HOSTNAME", raising=False)

    assert ClassicSettings(master, conf).environment.get("SPARK_LOCAL_HOSTNAME") == name


def test_a_host_name_that_the_environment_has_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_HOSTNAME", "chosen")

    assert ClassicSettings("local[*]", {}).environment["SPARK_LOCAL_HOSTNAME"] == "chosen"


@pytest.mark.parametrize(
    ("master", "conf", "environment", "needs"),
    [
        ("local[*]", {}, {}, False),
        ("local[4, 2]", {"spark.driver.memory": "2g", "spark.task.cpus": "2"}, {}, False),
        ("local[*]", {"spark.driver.extraClassPath": "/opt/classes"}, {}, True),
        ("local[*]", {"spark.submit.deployMode": "cluster"}, {}, True),
        ("local[*]", {}, {"SPARK_CONF_DIR": "/etc/spark"}, True),
        ("local[*]", {}, {"SPARK_HOME": "/opt/spark"}, True),
        ("local-cluster[1,1,1024]", {}, {}, True),
        ("spark://lake:7077", {}, {}, True),
    ],
)
def test_java_is_launched_directly_where_spark_s_launcher_would_find_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], environment: dict[str, str], needs: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert ClassicSettings(master, conf).needs_launcher is needs


@pytest.mark.parametrize(
    ("spark", "is_cluster", "interpreter"),
    [
        ({}, False, sys.executable),
        ({"master": "local[4, 2]", "python": "pack"}, False, sys.executable),
        ({"master": "local-cluster[1,1,1024]"}, True, sys.executable),
        ({"master": "spark://lake:7077", "python": "pack"}, True, "./destination-datalake/bin/python"),
        ({"master": "yarn", "python": "/opt/lake/bin/python"}, True, "/opt/lake/bin/python"),
    ],
)
def test_only_executors_of_a_cluster_start_another_python(
    spark: dict[str, str], is_cluster: bool, interpreter: str
) -> None:
    settings = ClassicSettings.from_config(Config.parse(options(spark=spark)))

    assert settings.is_cluster == is_cluster
    assert settings.environment["PYSPARK_PYTHON"] == interpreter
    assert settings.environment["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.parametrize("name", ["scratch", "a b", """it's "a" \\ place"""])
def test_temporary_files_are_in_a_scratch_folder_of_any_name(tmp_path: Path, name: str) -> None:
    scratch = tmp_path / name

    properties = ClassicSettings("local[2]", {}, ("-Dours=1",)).properties(scratch)

    assert properties["spark.local.dir"] == str(scratch)
    # Spark's CommandBuilderUtils.parseOptionString splits as a POSIX shell does.
    java_options = shlex.split(properties["spark.driver.extraJavaOptions"])
    assert f"-Djava.io.tmpdir={scratch}" in java_options
    assert "-Dours=1" in java_options


@pytest.mark.parametrize("exists", [True, False])
def test_class_data_archive_is_used_if_it_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    archive = tmp_path / "spark.jsa"
    if exists:
        archive.touch()
    monkeypatch.setenv(ARCHIVE_VARIABLE, str(archive))

    options = ClassicSettings("local[2]", {}).properties(tmp_path)["spark.driver.extraJavaOptions"]

    assert archive_path() == archive
    assert (f"-XX:SharedArchiveFile={archive}" in shlex.split(options)) == exists


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,3]"),
        ("local[4]", "local[4,3]"),
        ("local[*]", "local[8,3]"),
        ("local[4,1]", "local[4,1]"),
        ("local-cluster[1,1,1024]", "local-cluster[1,1,1024]"),
        ("spark://lake:7077", "spark://lake:7077"),
    ],
)
def test_local_master_gets_attempts_and_a_thread_for_each_processor(master: str, expected: str) -> None:
    assert local_master_with_attempts(master, lambda: 8) == expected
