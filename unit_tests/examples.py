"""How many examples laws are tried on."""

import os

ALL = "EVERY_EXAMPLE" in os.environ
"""Whether laws are tried on all examples (`make laws`)."""

_SHARE = 1.0 if ALL else 0.15


def examples(count: int) -> int:
    """Return `count` where all are wanted (`make laws`), and a seventh of it in other runs, but no less than 15."""
    return max(round(count * _SHARE), min(count, 15))


def long_examples(count: int, few: int) -> int:
    """Return `count` where all are wanted, and `few` in every other run: for laws whose examples take long."""
    return count if ALL else few
