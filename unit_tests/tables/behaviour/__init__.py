"""What every table type promises: one suite of behaviours, run on each of them.

The tables are opened as a sync opens them, from options; their files are written by the code that runs on the
executors; readers are DuckDB and PyIceberg. Where table types promise different things, `promises.py` says which.
"""
