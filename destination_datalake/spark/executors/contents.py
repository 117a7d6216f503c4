"""What the archive for executors contains: the connector, and the packages that its work on executors imports."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import destination_datalake
from destination_datalake.spark.executors.python import MINOR_VERSION, WORKER_ENVIRONMENT

_CONNECTOR = "destination-datalake"

DISTRIBUTIONS = (
    "anyascii",
    "boto3",
    "botocore",
    "jmespath",
    "mmh3",
    "msgspec",
    "numpy",
    "pyarrow",
    "python-dateutil",
    "s3transfer",
    "six",
    "tenacity",
    "tzdata",
    "urllib3",
)
"""The distributions whose packages executors import, with what these require."""

FOR_JSON_LINES = ("duckdb",)
"""The distributions that executors import besides if they write JSON lines."""

_OMITTED = (
    "../*",  # commands
    "*.pyc",
    "*.pyi",
    "*.pxd",
    "*.pxi",
    "*.pyx",
    "*.h",
    "*.hpp",
    "*.dist-info/*",
    "*/tests/*",
    # Arrow's RPC, and what programs in C++ are built with.
    "pyarrow/include/*",
    "pyarrow/includes/*",
    "pyarrow/src/*",
    "pyarrow/_flight*",
    "pyarrow/libarrow_flight*",
    # The same library under the names that only linkers look for.
    "pyarrow/libarrow_python.so",
    "pyarrow/libarrow_python.so.*.*.*",
    "numpy/f2py/*",
    # Models of the services that executors do not call.
    "botocore/data/*/*",
    "boto3/data/*/*",
    "boto3/examples/*",
    "duckdb/experimental/*",
)
_KEPT = (
    # S3, and what finds credentials in the executor's environment.
    "botocore/data/s3/*",
    "botocore/data/sts/*",
    "botocore/data/sso/*",
    "botocore/data/sso-oidc/*",
    "*.dist-info/METADATA",
)


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file of the archive: its path below `sys.path`'s entry, and where it is on this machine."""

    path: str
    source: Path


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of an archive, by path, and a fingerprint that differs if one of them does."""

    files: tuple[PackedFile, ...]
    fingerprint: str


def contents(*, with_json_lines: bool) -> Contents:
    """Return what executors need of this environment. Raises PackageNotFoundError if a distribution is missing.

    The fingerprint rests on the digests that installers have recorded for libraries, and on the connector's files.
    """
    digest = hashlib.sha256(f"{sysconfig.get_config_var('SOABI')} {_OMITTED} {_KEPT} {launcher()}".encode())
    files: list[PackedFile] = []
    for name in (*DISTRIBUTIONS, *(FOR_JSON_LINES if with_json_lines else ())):
        distribution = metadata.distribution(name)
        digest.update(f"{name} {distribution.version}\n{distribution.read_text('RECORD')}".encode())
        files += _files_of(distribution)
    for file in _connector():
        digest.update(f"{file.path}\n".encode())
        digest.update(file.source.read_bytes())
        files.append(file)
    return Contents(tuple(sorted(files, key=lambda file: file.path)), digest.hexdigest()[:16])


def _files_of(distribution: metadata.Distribution) -> Iterator[PackedFile]:
    for file in distribution.files or ():
        path = str(file)
        if _matches(path, _OMITTED) and not _matches(path, _KEPT):
            continue
        source = Path(str(distribution.locate_file(file)))
        if source.is_file():
            yield PackedFile(path, source)


def _connector() -> Iterator[PackedFile]:
    """Yield the connector's modules, installed or not, and the file that names its version."""
    package = Path(destination_datalake.__file__).parent
    for source in package.rglob("*.py"):
        yield PackedFile(source.relative_to(package.parent).as_posix(), source)
    distribution = metadata.distribution(_CONNECTOR)
    for file in distribution.files or ():
        if file.match("*.dist-info/METADATA"):
            yield PackedFile(str(file), Path(str(distribution.locate_file(file))))


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def launcher() -> str:
    """Return the script that executors start Python with: their own, of this minor version, with the packages.

    PYSPARK_PYTHON is what the cluster's administrators have set on its machines. If there is no Python of this
    version, Spark compares whatever there is, and says both versions.
    """
    variables = "\n".join(f'export {name}="${{{name}:-{value}}}"' for name, value in WORKER_ENVIRONMENT.items())
    return _LAUNCHER.format(version=MINOR_VERSION, variables=variables)


_LAUNCHER = """#!/bin/sh
# The executor's own Python {version}, with the packages of this archive.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
export PYTHONPATH="$here/packages${{PYTHONPATH:+:$PYTHONPATH}}"
{variables}
test_version='import sys; sys.exit("%d.%d" % sys.version_info[:2] != "{version}")'
for python in "${{PYSPARK_PYTHON:-}}" python{version} python3 python; do
    case $python in "" | */destination-datalake/bin/python) continue ;; esac
    if "$python" -c "$test_version" 2> /dev/null; then
        exec "$python" "$@"
    fi
done
exec python3 "$@"
"""
