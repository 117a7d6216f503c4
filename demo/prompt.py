"""A prompt of DuckDB over the demo's lake: a statement sees the tables that it names as they are now.

DuckDB's own command line reads Iceberg tables with an extension, which it downloads. Here PyIceberg plans the scan.
"""

import readline  # noqa: F401  What is typed can be edited, and comes again.
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb

from demo.connector import connector
from demo.show import console
from integration_tests.harness.glue_types import quoted
from integration_tests.harness.lake import Lake

_REPORTS = "airbyte_sync_reports"
_MOST_ROWS = 50
"""Rows of a result that are shown."""


def prompt(lake: Lake, folder: Path) -> None:
    """Answer statements of SQL on stdin, each ended by a `;`, until its end or Ctrl-C."""
    tables = [*lake.tables(), (lake.database, _REPORTS)]
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        for database, table in tables:
            engine.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(database)}")
            _load(engine, lake, database, table)
        engine.execute(f"SET search_path = '{','.join(dict.fromkeys(database for database, _ in tables))}'")
        console.rule("[bold]DuckDB[/]", align="left")
        console.print(f"  tables: {', '.join(f'{database}.{table}' for database, table in tables)}", highlight=False)
        console.print(f"  AWS: {lake.endpoint_url}, until this ends (Ctrl-D). More syncs, their history and health:")
        config = folder / "config.json"
        console.print(f"  {connector()} history --config {config}\n", highlight=False, soft_wrap=True)
        try:
            for statement in _statements():
                _answer(engine, lake, tables, statement)
        except KeyboardInterrupt:
            print()


def _statements() -> Iterator[str]:
    """Yield what is typed, or piped: each up to a line that ends with `;`, the last one also without."""
    lines: list[str] = []
    is_terminal = sys.stdin.isatty()
    while True:
        try:
            lines.append(input(("… " if lines else "D ") if is_terminal else ""))
        except EOFError:
            if is_terminal:
                print()
            yield from filter(str.strip, ["\n".join(lines)])
            return
        if lines[-1].rstrip().endswith(";") or not lines[0].strip():
            yield from filter(str.strip, ["\n".join(lines)])
            lines.clear()


def _answer(engine: duckdb.DuckDBPyConnection, lake: Lake, tables: Sequence[tuple[str, str]], statement: str) -> None:
    for database, table in tables:
        if table in statement:
            _load(engine, lake, database, table)
    try:
        for part in engine.extract_statements(statement):
            if (result := engine.sql(part.query)) is not None:
                result.show(max_rows=_MOST_ROWS, max_width=console.width)
    except duckdb.Error as error:
        console.print(str(error), style="red", markup=False, highlight=False)


def _load(engine: duckdb.DuckDBPyConnection, lake: Lake, database: str, table: str) -> None:
    """Give the engine a table's rows as they are now."""
    if table == _REPORTS:
        keys = [key for key in lake.reports() if key.endswith(".jsonl")]
        rows = lake.read_hive_files(keys, lake.glue_table(database, table)["StorageDescriptor"])
    else:
        rows = lake.read(database, table)
    engine.register("rows", rows)
    engine.execute(f"CREATE OR REPLACE TABLE {quoted(database)}.{quoted(table)} AS FROM temp.main.rows")
    engine.unregister("rows")
