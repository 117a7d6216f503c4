"""Which tests `make test` runs, and which only `make test-slow` does: those with the mark `slow`.

Beside the tests that carry the mark, two rules give it:

- A scenario that is parametrised over kinds of table is run with one of them; the kinds take turns with scenarios.
- Of the parameters of a test with the mark `share(n)`, and of the tests of a module with it, `n` are run.

Both choose by a hash of the test's name: every run chooses alike, and each choice meets all kinds and parameters.
What hypothesis tries has the mark `law`: `make test-slow` runs it again, on more examples.

Of the n parameters of a test with either mark, `make test-slow` draws as many as the square root of n, seeded with the
commit, so that over many commits it visits all. `SLICES=5` draws one test of five. `make test-all` runs all.
"""

from __future__ import annotations

import gc
import multiprocessing.util
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from math import isqrt
from random import Random
from zlib import crc32

import pytest
from hypothesis import is_hypothesis_test

from integration_tests.harness.table_kinds import TableKind
from unit_tests.examples import DRAW, HOW_MANY

SLICES = int(os.environ.get("SLICES", "1"))
"""Of so many tests, one is drawn."""


def pytest_report_header() -> str:
    return f"EXAMPLES={HOW_MANY} DRAW={DRAW} SLICES={SLICES}"


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Temporary files of tests, and of processes that they kill, are in one folder, which is deleted in the end."""
    # These two are not in it: pytest keeps its own for a look at failures, and multiprocessing deletes its own later.
    tmp_path_factory.getbasetemp()
    multiprocessing.util.get_temp_dir()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without collecting garbage, which took half of the time; modules and tests stay anyway.

    Afterwards, garbage is collected less often, and not among them: it took a sixth of the CPU time of unit tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 10)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
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
        kinds = [test for test in tests if not test.get_closest_marker("slow")]
        if kinds:
            del kinds[crc32(takes_turn.encode()) % len(kinds)]
            _mark_slow(kinds)
    # Tests before their modules, which choose from what is left.
    for (_, share), shares in sorted(shared.items(), key=lambda entry: "::" not in entry[0][0]):
        quick = [test for test in shares if not test.get_closest_marker("slow")]
        _mark_slow(sorted(quick, key=lambda test: crc32(test.nodeid.encode()))[share:])
    if HOW_MANY == "more":
        left_out = _left_out(items)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [test for test in items if test not in left_out]


def _left_out(tests: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests with the mark `slow` or `law` that are not drawn."""
    families = defaultdict(set)
    for test in tests:
        if test.get_closest_marker("slow") or test.get_closest_marker("law"):
            families[test.nodeid.partition("[")[0]].add(test)
    left_out: set[pytest.Item] = set()
    for name, family in families.items():
        draw = Random(f"{DRAW} {name}")
        count = 0 if draw.randrange(SLICES) else isqrt(len(family))
        left_out |= family - {*draw.sample(sorted(family, key=lambda test: test.nodeid), count)}
    return left_out


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
