"""Aggregate all rows of an Iceberg table with DuckDB, in the environment of `unit_tests/laws/dedup/extension`.

The arguments are the folder with a copy of the bucket, the URI of the metadata file, and the number of reads. Prints
the median CPU time in seconds.
"""

import statistics
import sys
import time

from unit_tests.laws.dedup.extension.scan import connect


def main(metadata: str, reads: int) -> None:
    """Read the table `reads` times, and print the median CPU time in seconds."""
    engine, seconds = connect(), []
    for _ in range(reads):
        started = time.process_time()
        engine.execute(f"SELECT count(*), sum(score), max(ref) FROM iceberg_scan('{metadata}')").fetchall()
        seconds.append(time.process_time() - started)
    print(statistics.median(seconds))


if __name__ == "__main__":
    main(sys.argv[2], int(sys.argv[3]))
