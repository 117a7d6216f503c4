"""What the demo prints."""

import json
import sys
from collections import Counter
from pathlib import Path

import duckdb
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from demo.connector import Answer
from integration_tests.harness.lake import Lake

_ROWS_SHOWN = 3

_WIDEST = 28
"""Characters of a value that are shown."""

console = Console(width=None if sys.stdout.isatty() else 120)


def show_answer(answer: Answer, description: str) -> None:
    """Print one line for a run of the connector, and its complaints."""
    mark = "[green]✓[/]" if answer.exit_code == 0 else "[red]✗[/]"
    console.print(
        f"{mark} [bold]{answer.command}[/]  {description}  [dim]exit {answer.exit_code}, {answer.seconds:.1f} s[/]"
    )
    for complaint in answer.complaints():
        console.print(f"  {complaint}", style="yellow", markup=False, highlight=False)


def show_stderr(folder: Path) -> None:
    """Print the end of what the connector wrote to stderr, for a run that failed."""
    console.print((folder / "stderr").read_text(errors="replace")[-4000:], markup=False, style="dim")


def show_states(answer: Answer) -> None:
    """Print the states released, by stream."""
    states = [message["state"] for message in answer.messages_of("STATE")]
    names = [state["stream"]["stream_descriptor"]["name"] for state in states]
    last = {name: state["stream"]["stream_state"]["cursor"] for name, state in zip(names, states, strict=True)}
    records: Counter[str] = Counter()
    for name, state in zip(names, states, strict=True):
        records[name] += int(state["destinationStats"]["recordCount"])
    table = Table(title="States released", title_justify="left")
    for heading in ("stream", "states", "records they stand for", "last cursor"):
        table.add_column(heading, justify="left" if heading == "stream" else "right")
    for name, count in Counter(names).items():
        table.add_row(name, str(count), f"{records[name]:,}", str(last[name]))
    console.print(table)


def show_table(lake: Lake, database: str, name: str) -> int:
    """Print a table's schema in Glue, some of its rows as DuckDB reads them, and its files; return its row count."""
    rows = lake.read(database, name)
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.register("lake_table", rows)
        excerpt = engine.sql(
            "SELECT COLUMNS(lambda name: NOT starts_with(name, '_airbyte_'))::VARCHAR "
            f"FROM (FROM lake_table ORDER BY id LIMIT {_ROWS_SHOWN})"
        )
        columns, values = excerpt.columns, excerpt.fetchall()
    console.rule(f"[bold]{database}.{name}[/]  {rows.num_rows:,} rows", align="left")
    parameters = lake.glue_table(database, name).get("Parameters", {})
    schema = Table(title=f"Glue schema [dim]({parameters.get('table_type', 'Hive table')})[/]", title_justify="left")
    schema.add_column("column")
    schema.add_column("type", overflow="fold")
    for column, kind in lake.columns(database, name).items():
        schema.add_row(column, kind, style="dim" if column.startswith("_airbyte_") else "")
    console.print(schema)
    sample = Table(title=f"{len(values)} rows read by DuckDB", title_justify="left")
    for column in columns:
        sample.add_column(column, overflow="ellipsis", no_wrap=True, min_width=5, max_width=_WIDEST)
    for value in values:
        sample.add_row(*(escape(str(cell)) for cell in value))
    console.print(sample)
    files = lake.data_files(database, name)
    for key, size in list(files.items())[:_ROWS_SHOWN]:
        console.print(f"  s3://{lake.bucket}/{key}  [cyan]{size:,} bytes[/]", highlight=False, soft_wrap=True)
    console.print(f"  {len(files)} data files, {sum(files.values()):,} bytes\n")
    return rows.num_rows


def show_config(config: dict[str, object]) -> None:
    """Print the connector's configuration without its secret."""
    visible = {key: value for key, value in config.items() if key != "credentials"}
    console.print(f"[dim]config[/] {json.dumps(visible)}", highlight=False)
