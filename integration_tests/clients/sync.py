"""A user's program, run by PyAirbyte's interpreter: `sync.py SOURCE DESTINATION CONFIG COUNT STRATEGY`.

Reads all streams of source-faker, COUNT users among them, into PyAirbyte's cache, and writes them to the destination.
"""

import json
import sys
from pathlib import Path

import airbyte  # type: ignore[import-not-found]  # It is in an environment of its own.
from airbyte.strategies import WriteStrategy  # type: ignore[import-not-found]

source, destination, config, count, strategy = sys.argv[1:]
faker = airbyte.get_source(
    "source-faker", local_executable=source, config={"count": int(count), "seed": 4027}, streams="*"
)
lake = airbyte.get_destination(
    "destination-datalake", local_executable=destination, config=json.loads(Path(config).read_text(encoding="utf-8"))
)
lake.write(faker.read(), write_strategy=WriteStrategy(strategy))
