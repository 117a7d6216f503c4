"""Which tests `make test` runs, and which only `make test-slow` does: those with the mark `slow`.

Beside the tests that carry the mark, two rules give it:

- A scenario that is parametrised over kinds of table is run with one of them; the kinds take turns with scenarios.
- Of the parameters of a test with the mark `share(n)`, and of the tests of a module with it, `n` are run.

Both choose by a hash of the test's name: every run chooses alike, and each choice meets all kinds and parameters.
What hypothesis tries has the mark `law`: `make test-slow` runs it again, on more examples.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from zlib import crc32

import pytest
from hypothesis import is_hypothesis_test

from integration_tests.harness.table_kinds import TableKind


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    scenarios, shared = defaultdict(list), defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker("law")
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            scenarios[_scenario(item)].append(item)
        for node, share in item.iter_markers_with_node("share"):
            shared[node.nodeid.partition("[")[0], share.args[0]].append(item)
    for scenario, tests in scenarios.items():
        takes_turn = tests[0].path.name if tests[0].get_closest_marker("module_turn") else scenario
        turn = crc32(takes_turn.encode()) % len(tests)
        _mark_slow(tests[:turn] + tests[turn + 1 :])
    # Tests before their modules, which choose from what is left.
    for (_, share), shares in sorted(shared.items(), key=lambda each: "::" not in each[0][0]):
        quick = [test for test in shares if not test.get_closest_marker("slow")]
        _mark_slow(sorted(quick, key=lambda test: crc32(test.nodeid.encode()))[share:])


def _scenario(test: pytest.Function) -> str:
    """Return what is the same for tests that differ in the kind of table alone."""
    name = test.nodeid
    for value in test.callspec.params.values():
        if isinstance(value, TableKind) and not test.get_closest_marker("every_kind"):
            name = re.sub(rf"(?<=[\[-]){re.escape(value.name)}(?=[\]-])", "", name)
    return name


def _mark_slow(tests: Iterable[pytest.Item]) -> None:
    for test in tests:
        test.add_marker("slow")
