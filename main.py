"""Runs the connector from a checkout: `python main.py spec | check | write`."""

import sys

from destination_datalake.cli import run

if __name__ == "__main__":
    sys.exit(run())
