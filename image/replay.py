"""Replay the Dockerfile without a container engine, and run the connector in what it makes: `make image-test`.

Needs root, debootstrap and some minutes. Each stage is a folder with a Debian, and runs in chroot; its Python is
Debian's 3.11 instead of the base image's. Packages come from where this machine's apt, pip and uv get them. Mounts are
made in a namespace of their own and end with it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from emulated_aws.server import AwsServer

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.launch import Launch, Process
from integration_tests.harness.runs.platform import Platform

PROJECT = Path(__file__).parent.parent
DOCKERFILE = PROJECT / "Dockerfile"
SUITE = "bookworm"
PACKAGES = "ca-certificates,python3,python3-pip,python3-venv"
"""Debian's packages, for what the base image has."""

_INHERITED = re.compile(r"(PIP|UV|SSL|REQUESTS|CURL)_\w+|\w+_proxy", re.IGNORECASE)
_FROM_THIS_MACHINE = ("/etc/resolv.conf", "/etc/hosts", "/etc/apt/apt.conf.d", "/etc/ssl/certs", "/etc/pip.conf")


@dataclass
class Stage:
    """A stage of the build: its root folder, and what the instructions so far have set."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: Sequence[str] = ()

    def command(self, arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """Return the command line that runs these arguments in the stage, as its user."""
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **self.environment, **environment}
        settings = [f"{name}={value}" for name, value in variables.items()]
        inside = ["sh", "-c", 'cd "$0" && exec "$@"', self.workdir, *arguments]
        return ["chroot", f"--userspec={self.user}", str(self.root), "env", "-i", *settings, *inside]

    def run(self, script: str) -> None:
        """Run a script of the shell. Raises CalledProcessError if it fails."""
        subprocess.run(self.command(["sh", "-ec", script], _inherited()), check=True)


def build(folder: Path) -> Stage:
    """Follow the Dockerfile and return its last stage."""
    base = folder / "base"
    _bootstrap(base)
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    stage = Stage(base)
    for number, (word, text) in enumerate(instructions(DOCKERFILE.read_text())):
        sys.stdout.write(f"--- {word} {text[:100]}\n")
        sys.stdout.flush()
        text = text if word == "RUN" else _filled_in(text, {**arguments, **stage.environment})
        match word:
            case "ARG":
                name, _, value = text.partition("=")
                arguments[name] = value
            case "FROM":
                name = text.partition(" AS ")[2] or "image"
                stage = stages[name] = Stage(folder / f"{number}-{name}")
                subprocess.run(["cp", "-a", str(base), str(stage.root)], check=True)
                _mount(stage.root)
            case "RUN":
                settings = "".join(f"export {name}={shlex.quote(value)}; " for name, value in arguments.items())
                stage.run(settings + text)
            case "ENV":
                stage.environment |= dict(pair.split("=", 1) for pair in shlex.split(text))
            case "WORKDIR":
                stage.workdir = text
                (stage.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "COPY":
                _copy(shlex.split(text), stage, stages)
            case "USER":
                stage.user = text
            case "ENTRYPOINT":
                stage.entrypoint = json.loads(text)
            case "LABEL":
                pass
            case _:
                raise SystemExit(f"{DOCKERFILE}: {word} cannot be replayed")
    return stage


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile with their text; continued lines are joined."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, _, text = line.partition(" ")
        yield word, text.strip()


def _filled_in(text: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda variable: known[variable[1]], text)


def _bootstrap(base: Path) -> None:
    """Install a Debian with Python 3.11, called `python` too, as in the base image."""
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    mirror = next((line.split()[1] for line in targets.splitlines() if line.startswith(f"{SUITE} ")), None)
    if mirror is None:
        raise SystemExit(f"apt on this machine knows no packages of Debian {SUITE}, which the image is made of.")
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(base), mirror],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (base / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    # Debian forbids pip to install into its Python; the base image does not.
    for marker in base.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    for name in _FROM_THIS_MACHINE:
        if (source := Path(name)).exists():
            # Some of it may not be readable, or be dangling links.
            subprocess.run(["cp", "-rLT", name, str(base / source.relative_to("/"))], check=False)


def _mount(root: Path) -> None:
    for name in ("proc", "dev"):
        subprocess.run(["mount", "--rbind", f"/{name}", str(root / name)], check=True)


def _copy(words: Sequence[str], stage: Stage, stages: Mapping[str, Stage]) -> None:
    source, paths = PROJECT, list(words)
    if paths[0].startswith("--from="):
        source = stages[paths.pop(0).removeprefix("--from=")].root
    *names, target = paths
    inside = target if target.startswith("/") else os.path.join(stage.workdir, target)  # noqa: PTH118
    place = stage.root / inside.lstrip("/")
    for name in names:
        path = source / name.lstrip("/")
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so") if source == PROJECT else None
            shutil.copytree(path, place, symlinks=True, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy2(path, place)


def _inherited() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}


def run_connector(image: Stage) -> None:
    """Run spec, check and write in the image, as its user and as an unknown one, against an emulated AWS."""
    catalog = configured_catalog(configured_stream("orders", {"properties": {"id": {"type": "integer"}}}))
    lines = [record("orders", {"id": 1}), state("orders", 1), status("orders", "COMPLETE")]
    with AwsServer() as aws:
        for user in (image.user, "54321:0"):
            folder = Path(tempfile.mkdtemp(dir=image.root / "tmp"))
            launch = _launcher(Stage(image.root, image.environment, image.workdir, user, image.entrypoint), folder)
            platform, lake = Platform(folder, launch), Lake(aws.endpoint_url)
            for table_type, format_type in (("ICEBERG", "Parquet"), ("HIVE", "JSONL")):
                config = lake.config(
                    table_type=table_type,
                    format={"format_type": format_type},
                    lakeformation_database_name=lake.name(table_type.lower()),
                )
                spec, check = platform.spec(), platform.check(config)
                run = platform.write(config, catalog, lines)
                assert spec.exit_code == 0, spec.report()
                assert check.connection_status["status"] == "SUCCEEDED", check.report()
                assert (run.exit_code, len(run.states)) == (0, 1), run.report()
                assert [row["id"] for row in lake.rows(lake.name(table_type.lower()), "orders")] == [1]
                sys.stdout.write(
                    f"user {user}, {table_type}: spec {spec.seconds:.1f} s, check {check.seconds:.1f} s, "
                    f"write {run.seconds:.1f} s\n"
                )


def _launcher(image: Stage, folder: Path) -> Launch:
    """Start the image's entry point; the platform's files are in the image's /tmp."""

    def launch(arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]) -> Process:
        outside = str(image.root)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        inside = [argument.removeprefix(outside) for argument in arguments]
        settings = {"TMPDIR": environment["TMPDIR"].removeprefix(outside)}
        command = image.command([*image.entrypoint, *inside], settings)
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)

    return launch


def _size(root: Path) -> int:
    """Return the size on disk in MB."""
    size = subprocess.run(["du", "-sxm", str(root)], check=True, capture_output=True, text=True).stdout
    return int(size.split()[0])


def main() -> None:
    """Build, measure and try."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise SystemExit("make image-test needs root and debootstrap (apt-get install debootstrap).")
    if "IMAGE_REPLAY" not in os.environ:
        arguments = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "image.replay"]
        os.execvpe(arguments[0], arguments, {**os.environ, "IMAGE_REPLAY": "inside"})
    with tempfile.TemporaryDirectory(prefix="destination-datalake-image-", dir="/var/tmp") as folder:
        _replay(Path(folder))


def _replay(folder: Path) -> None:
    with _unmounted(folder):
        folder.chmod(0o755)
        image = build(folder)
        sys.stdout.write(f"the image: {_size(image.root)} MB, of which {_size(folder / 'base')} MB are Debian's\n")
        run_connector(image)


@contextmanager
def _unmounted(folder: Path) -> Iterator[None]:
    """Unmount this machine's folders at the end, before the folder is removed with all that is in it."""
    try:
        yield
    finally:
        for root in folder.iterdir():
            for name in ("proc", "dev"):
                if (root / name).is_mount():
                    subprocess.run(["umount", "--recursive", "--lazy", str(root / name)], check=True)


if __name__ == "__main__":
    main()
