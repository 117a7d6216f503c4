"""How many examples laws are tried on: few by `make test`, more by `make test-slow`, all by `make test-all`.

`make test-slow` also draws which of a test's parameters it runs (see the root's conftest.py).
"""

import os

HOW_MANY = os.environ.get("EXAMPLES", "few")
_SHARES = {"few": 0.03, "more": 0.15, "all": 1.0}
assert HOW_MANY in _SHARES, f"EXAMPLES is one of {[*_SHARES]}"

DRAW = os.environ.get("DRAW", "")
"""The seed of what is drawn: `make test-slow` sets it to the commit."""

IS_EXHAUSTIVE = HOW_MANY == "all"
"""Whether laws are tried on all examples."""

PLAIN = 20 if HOW_MANY == "few" else 100
"""The examples of a law that asks for no number."""


def examples(count: int) -> int:
    """Return `count` where all are wanted, and a seventh or a thirtieth of it otherwise, but no less than 15."""
    return max(round(count * _SHARES[HOW_MANY]), min(count, 15))


def long_examples(count: int, more: int) -> int:
    """Return `count` where all are wanted, otherwise `more`, or a third of that: for laws whose examples take long."""
    return {"few": -(-more // 3), "more": more, "all": count}[HOW_MANY]
