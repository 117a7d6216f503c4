"""The jars of Iceberg's own catalog, as `jars.txt` pins them: `python -m integration_tests.catalogs.reference.jars`."""

import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from unit_tests.repository.files import ROOT

JARS = ROOT / ".catalogs"
PINNED = dict(line.split() for line in Path(__file__).with_name("jars.txt").read_text().splitlines())
"""The SHA-256 of each jar, by `group:artifact:version` or `group:artifact:version:classifier`."""


def bring() -> None:
    """Download what is missing, with the Ivy that Spark has.

    Raises AssertionError for jars that are not to be had, or are others.
    """
    if not all(_file(coordinates).exists() for coordinates in PINNED):
        (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
        with tempfile.TemporaryDirectory() as folder:
            module = Path(folder, "ivy.xml")
            module.write_text(_module())
            pattern = f"{JARS}/[artifact]-[revision](-[classifier]).[ext]"
            command = ["java", "-jar", str(ivy), "-warn", "-cache", folder, "-ivy", str(module), "-retrieve", pattern]
            ended = subprocess.run(command, capture_output=True, text=True)
            assert ended.returncode == 0, f"Ivy has failed:\n{ended.stdout}{ended.stderr}"
    for coordinates, digest in PINNED.items():
        actual = sha256(_file(coordinates).read_bytes()).hexdigest()
        assert actual == digest, f"{coordinates} is another one: {actual}"


def _file(coordinates: str) -> Path:
    return JARS / f"{'-'.join(coordinates.split(':')[1:])}.jar"


def _module() -> str:
    """Return what Ivy is to bring: these jars, and none that they need besides."""
    artifacts: dict[tuple[str, str, str], list[str]] = {}
    for coordinates in PINNED:
        group, name, version, *classifier = coordinates.split(":")
        attribute = f" m:classifier={quoteattr(classifier[0])}" if classifier else ""
        artifact = f"<artifact name={quoteattr(name)} type='jar' ext='jar'{attribute}/>"
        artifacts.setdefault((group, name, version), []).append(artifact)
    dependencies = "\n".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)} transitive='false' "
        f"conf='default->master'>{''.join(files)}</dependency>"
        for (group, name, version), files in artifacts.items()
    )
    return (
        "<ivy-module version='2.0' xmlns:m='http://ant.apache.org/ivy/maven'>\n"
        "<info organisation='tests' module='catalogs'/>\n"
        f"<configurations><conf name='default'/></configurations>\n<dependencies>\n{dependencies}\n</dependencies>\n"
        "</ivy-module>\n"
    )


if __name__ == "__main__":
    bring()
