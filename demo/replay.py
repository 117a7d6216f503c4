"""The archive of a stream, and a replay of it that is compared with the table."""

import gzip
import subprocess
import time
from pathlib import Path

from demo.connector import connector
from demo.sample import NAMESPACE
from demo.show import console
from integration_tests.archive.replays import difference
from integration_tests.harness.lake import PREFIX, Lake

_CHARACTERS = 300
"""Of a line that is shown."""


def replay(lake: Lake, folder: Path, stream: str) -> list[str]:
    """Show a stream's archive, replay it into another table, and compare the two; return what went wrong."""
    console.rule(f"[bold]the archive of {NAMESPACE}.{stream}[/]", align="left")
    archive = lake.objects(f"{PREFIX}/_raw/{NAMESPACE}.{stream}/")
    for key, size in archive.items():
        console.print(f"  s3://{lake.bucket}/{key}  [cyan]{size:,} bytes[/]", highlight=False, soft_wrap=True)
    lines = next(key for key in archive if key.endswith(".jsonl.gz"))
    with gzip.open(lake.s3.get_object(Bucket=lake.bucket, Key=lines)["Body"]) as file:
        first = file.readline().decode()
    console.print(f"  its first line: {first[:_CHARACTERS]}", style="dim", markup=False, highlight=False)

    arguments = ("replay", "--config", str(folder / "config.json"), "--stream", f"{NAMESPACE}.{stream}")
    started = time.monotonic()
    with (folder / "stderr").open("ab") as log:
        run = subprocess.run(
            [connector(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=False,
        )
    for line in run.stdout.splitlines():
        console.print(f"  {line}", markup=False, highlight=False)
    seconds = time.monotonic() - started
    mark = "[green]✓[/]" if run.returncode == 0 else "[red]✗[/]"
    console.print(f"{mark} [bold]replay[/]  [dim]exit {run.returncode}, {seconds:.1f} s[/]")
    if run.returncode:
        return ["replay failed"]

    differing = difference(*(lake.read(NAMESPACE, name) for name in (stream, f"{stream}__replay")))
    console.print(f"  EXCEPT ALL of {stream} and {stream}__replay, both ways: {len(differing)} rows")
    return [f"{stream}: the replayed table is another one"] if differing else []
