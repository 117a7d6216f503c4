"""DuckDB with its Iceberg extension as a judge. Its environment is its own: the extension is of another DuckDB."""
