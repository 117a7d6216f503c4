"""A whole sync on this machine alone: an embedded AWS, a sample, the connector, and a look at the lake.

`FORMAT=jsonl` or `TABLE_TYPE=hive` in the environment choose other tables; with `ARCHIVE=1` the records are archived
too, and one stream is replayed; with `KEEP=1` the lake is kept until a prompt of DuckDB ends. Exit code 0 only when
every table holds as many rows as were sent, every state came back, and the replayed table equals the first one.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from emulated_aws.server import AwsServer

from demo.connector import run_connector
from demo.prompt import prompt
from demo.replay import replay
from demo.sample import NAMESPACE, SIZES, write_sample
from demo.show import console, show_answer, show_config, show_states, show_stderr, show_table
from integration_tests.harness.lake import Lake

_FORMATS = {"parquet": "Parquet", "jsonl": "JSONL"}
_PAGE = Path("build", "demo.html")
_TABLE_TYPES = {"iceberg": "ICEBERG", "hive": "HIVE"}


def main() -> int:
    """Run the demo; returns the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="datalake-demo-") as name, AwsServer() as aws:
        folder = Path(name)
        lake = Lake(aws.endpoint_url)
        config = lake.config(**options)
        (folder / "config.json").write_text(json.dumps(config))
        problems = _sync(lake, folder)
        if not problems and "raw_archive" in options:
            problems = replay(lake, folder, "orders")
        if not problems:
            problems = _report(folder)
        if problems:
            show_stderr(folder)
        elif _asks_for("KEEP"):
            prompt(lake, folder)
    for problem in problems:
        console.print(f"[red]{problem}[/]")
    return 1 if problems else 0


def _options() -> dict[str, object]:
    """Return the options that the environment asks for; ends the program when it asks for what there is not."""
    options: dict[str, object] = {}
    if chosen := os.environ.get("FORMAT"):
        if chosen.lower() not in _FORMATS:
            sys.exit(f"FORMAT is {chosen}; it can be one of: {', '.join(_FORMATS)}")
        options["format"] = {"format_type": _FORMATS[chosen.lower()]}
    if chosen := os.environ.get("TABLE_TYPE"):
        if chosen.lower() not in _TABLE_TYPES:
            sys.exit(f"TABLE_TYPE is {chosen}; it can be one of: {', '.join(_TABLE_TYPES)}")
        options["table_type"] = _TABLE_TYPES[chosen.lower()]
    if _asks_for("ARCHIVE"):
        options["raw_archive"] = {"enabled": True}
    return options


def _asks_for(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


def _sync(lake: Lake, folder: Path) -> list[str]:
    """Run spec, check and write, and show what they did; returns what went wrong."""
    config = folder / "config.json"
    show_config(json.loads(config.read_bytes()))

    answer = run_connector(folder, "spec")
    options = [message["spec"]["connectionSpecification"]["properties"] for message in answer.messages_of("SPEC")]
    show_answer(answer, f"{len(options[0])} options" if options else "no answer")

    answer = run_connector(folder, "check", "--config", str(config))
    verdicts = [message["connectionStatus"] for message in answer.messages_of("CONNECTION_STATUS")]
    show_answer(answer, " ".join(f"{verdict['status']} {verdict.get('message', '')}".strip() for verdict in verdicts))
    if [verdict["status"] for verdict in verdicts] != ["SUCCEEDED"]:
        return ["check did not succeed"]

    sample = write_sample(folder)
    records = sum(SIZES.values())
    arguments = ("write", "--config", str(config), "--catalog", str(sample.catalog))
    answer = run_connector(folder, *arguments, stdin=sample.messages)
    size = sample.messages.stat().st_size / 1e6
    speed = f"{records / answer.seconds:,.0f} records/s, start of the JVM included"
    show_answer(answer, f"{records:,} records ({size:.0f} MB) in {len(SIZES)} streams, {speed}")
    if answer.exit_code:
        return ["write failed"]

    show_states(answer)
    counts = {stream: show_table(lake, NAMESPACE, stream) for stream in SIZES}
    problems = [
        f"{stream}: {SIZES[stream]:,} records were sent, {count:,} rows are in the table"
        for stream, count in counts.items()
        if count != SIZES[stream]
    ]
    if (released := len(answer.messages_of("STATE"))) != sample.states:
        problems.append(f"{sample.states} states were sent, {released} came back")
    return problems


def _report(folder: Path) -> list[str]:
    """Write the page of the syncs' reports, and say where it is; return what went wrong."""
    _PAGE.parent.mkdir(exist_ok=True)
    answer = run_connector(folder, "report", "--config", str(folder / "config.json"), "--html", str(_PAGE))
    show_answer(answer, f"a page of the syncs: {_PAGE.resolve().as_uri()}")
    return ["report failed"] if answer.exit_code else []


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
