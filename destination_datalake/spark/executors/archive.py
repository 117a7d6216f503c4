"""Build the archive for executors, which contains the connector and the packages that executors import.

Archives with the same content have the same bytes. `python -m destination_datalake.spark.executors.archive` builds the
archive when a container image is built.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import os
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import destination_datalake
from destination_datalake.spark.executors.python import MINOR_VERSION, WORKER_ENVIRONMENT

_logger = logging.getLogger(__name__)

_CONNECTOR = "destination-datalake"
_COMPRESSION = 6
_MIB = 1024 * 1024

DISTRIBUTIONS = (
    "anyascii",
    "boto3",
    "botocore",
    "duckdb",
    "isal",
    "jmespath",
    "mmh3",
    "msgspec",
    "numpy",
    "pyarrow",
    "pyroaring",
    "python-dateutil",
    "s3transfer",
    "six",
    "tenacity",
    "tzdata",
    "urllib3",
)
"""The distributions whose packages executors import, including the dependencies of these distributions."""

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
    # Arrow's RPC libraries, and files that only builds of C++ programs need.
    "pyarrow/include/*",
    "pyarrow/includes/*",
    "pyarrow/src/*",
    "pyarrow/_flight*",
    "pyarrow/libarrow_flight*",
    # Copies of the library under names that only linkers use.
    "pyarrow/libarrow_python.so",
    "pyarrow/libarrow_python.so.*.*.*",
    "numpy/f2py/*",
    # botocore's models of services that executors do not call.
    "botocore/data/*/*",
    "boto3/data/*/*",
    "boto3/examples/*",
    "duckdb/experimental/*",
)
_KEPT = (
    # S3, and services that provide credentials in the executor's environment.
    "botocore/data/s3/*",
    "botocore/data/sts/*",
    "botocore/data/sso/*",
    "botocore/data/sso-oidc/*",
    "*.dist-info/METADATA",
)


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of an archive, ordered by path, and a fingerprint of the content of these files.

    `files` maps paths in the archive, relative to an entry of `sys.path`, to paths on this machine.
    """

    files: Mapping[str, Path]
    fingerprint: str

    @property
    def name(self) -> str:
        """The file name of the archive, which contains the fingerprint."""
        return f"executors-{self.fingerprint}.tar.gz"


def archive(scratch: Path) -> Path:
    """Return the path of the archive for executors: the one in the container image, or a new one in `scratch`.

    The archive is a gzip-compressed tar file. The script `bin/python` in the archive starts the executor's own Python
    with the packages in `packages/`. Building an archive takes some seconds and 79 MB of disk space. Raises OSError if
    the disk is full.
    """
    content = contents()
    path, origin = _prebuilt() / content.name, "from the container image"
    if not path.exists():
        started = time.monotonic()
        path = scratch / content.name
        build(content, path)
        origin = f"built in {time.monotonic() - started:.0f} s"
    _logger.info("Archive of the connector for executors (%.0f MB, %s): %s", path.stat().st_size / _MIB, origin, path)
    return path


def _prebuilt() -> Path:
    return Path(sys.prefix) / "share" / "destination-datalake"


def contents() -> Contents:
    """Return the files for the archive. Raises PackageNotFoundError if a distribution is not installed.

    The fingerprint depends on the content of the connector's files and, for libraries, on the digests that the
    installer of each library recorded.
    """
    digest = hashlib.sha256(f"{sysconfig.get_config_var('SOABI')} {_OMITTED} {_KEPT} {launcher()}".encode())
    files: dict[str, Path] = {}
    for name in DISTRIBUTIONS:
        distribution = metadata.distribution(name)
        digest.update(f"{name} {distribution.version}\n{distribution.read_text('RECORD')}".encode())
        files |= _files_of(distribution)
    for path, source in _connector():
        digest.update(f"{path}\n".encode())
        digest.update(source.read_bytes())
        files[path] = source
    return Contents(dict(sorted(files.items())), digest.hexdigest()[:16])


def _files_of(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    for file in distribution.files or ():
        path = str(file)
        if _matches(path, _OMITTED) and not _matches(path, _KEPT):
            continue
        source = Path(str(distribution.locate_file(file)))
        if source.is_file():
            yield path, source


def _connector() -> Iterator[tuple[str, Path]]:
    """Yield the connector's modules and native libraries, and the metadata file that contains its version.

    Works even if the connector is not installed.
    """
    package = Path(destination_datalake.__file__).parent
    for source in [*package.rglob("*.py"), *package.rglob("*.so")]:
        yield source.relative_to(package.parent).as_posix(), source
    distribution = metadata.distribution(_CONNECTOR)
    for file in distribution.files or ():
        if file.match("*.dist-info/METADATA"):
            yield str(file), Path(str(distribution.locate_file(file)))


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def build(content: Contents, path: Path) -> None:
    """Write the archive to a temporary file, then rename the file to `path`.

    There is therefore never a partial archive at `path`, even if the build is killed or another build runs
    concurrently.
    """
    # In the same folder, because only a rename within a file system replaces a file in one step.
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            # Omit the name and the time from the gzip header, so that the same content results in the same bytes.
            gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as tar,
        ):
            script = launcher().encode()
            tar.addfile(_member("bin/python", len(script), 0o755), io.BytesIO(script))
            for name, source in content.files.items():
                with source.open("rb") as opened:
                    # The open file's size: a tar header with another size would corrupt the archive.
                    size = os.fstat(opened.fileno()).st_size
                    tar.addfile(_member(f"packages/{name}", size, 0o644), opened)
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def _member(name: str, size: int, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, mode
    return member


def launcher() -> str:
    """Return a shell script that starts the executor's own Python, of the driver's minor version, with the packages.

    The script first tries the interpreter in the environment variable PYSPARK_PYTHON, which administrators may have set
    on the machines of the cluster. It then searches the PATH. If a machine has no Python of this version, the script
    starts another version. Spark then fails with an error message that names both versions.
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


def _build_for_image() -> None:
    """Build the archive in the `share` folder of this Python installation, and print the archive's path."""
    folder = _prebuilt()
    folder.mkdir(parents=True, exist_ok=True)
    content = contents()
    build(content, folder / content.name)
    sys.stdout.write(f"{folder / content.name}\n")


if __name__ == "__main__":
    _build_for_image()
