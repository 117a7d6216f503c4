"""The page build/conformance.md, written from the tests' names, docstrings and outcomes.

A pytest plugin: `make conformance` runs the suite with it and writes the page.
"""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from integration_tests.conformance.airbyte.scenarios import (
    BASIC_FUNCTIONALITY,
    LEGACY_ACCEPTANCE,
    REASONS,
    function_name,
    played_by,
)
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS

_HEADING = """\
# Conformance

Airbyte's test scenarios and the connector's own, by table type. Each test runs the connector's command against an
emulated AWS account (S3 and the Glue Data Catalog) and reads the tables' files with DuckDB. Tests that do not depend
on the table type run once, with Iceberg; their mark applies to all types. `make conformance` generates this page.
"""
_KINDS = (*TABLE_KINDS, *PARTITIONED_KINDS)
_SHARED = "the same for all"
_ABOUT_THE_PAGE = "test_scenarios"
_SYMBOLS = {"passed": "✓", "failed": "✗"}


@dataclass
class Case:
    """One test function: where it is, what it says, and its outcomes by kind of table."""

    module: str
    name: str
    says: str
    outcomes: dict[str, set[str]] = field(default_factory=dict)

    def note(self, kind: str, outcome: str) -> None:
        self.outcomes.setdefault(kind, set()).add(outcome)

    def cells(self) -> list[str]:
        shared = self.outcomes.get(_SHARED)
        return [_symbol(self.outcomes.get(kind.name, shared)) for kind in _KINDS]


def _symbol(outcomes: set[str] | None) -> str:
    """Return the worst of the outcomes, as a sign."""
    return next((_SYMBOLS[outcome] for outcome in ("failed", "passed") if outcome in (outcomes or ())), "")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--conformance-report", type=Path, metavar="FILE", help="where to write the conformance table")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--conformance-report")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(path))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a test's outcome, which may travel from another process, carry what its function says of itself."""
    assert isinstance(item, pytest.Function)
    callspec = getattr(item, "callspec", None)
    kind = callspec.params.get("table_kind") if callspec is not None else None
    item.user_properties += [
        ("says", (inspect.getdoc(item.function) or "").partition("\n\n")[0].replace("\n", " ")),
        ("kind", kind.name if kind is not None else _SHARED),
    ]


class Report:
    """Gathers outcomes and writes the page when the session ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cases: dict[tuple[str, str], Case] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        file, _, name = report.nodeid.partition("::")
        if Path(file).stem == _ABOUT_THE_PAGE:
            return
        properties = dict(report.user_properties)
        key = (Path(file).stem, name.partition("[")[0].rpartition("::")[2])
        case = self._cases.setdefault(key, Case(*key, str(properties.get("says", ""))))
        case.note(str(properties.get("kind", _SHARED)), report.outcome)

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(page(list(self._cases.values())))


def page(cases: Sequence[Case]) -> str:
    """Return the page as Markdown."""
    by_name = {case.name: case for case in cases}
    used: set[str] = set()
    parts = [_HEADING]
    for title, scenarios in (
        ("BasicFunctionalityIntegrationTest", BASIC_FUNCTIONALITY),
        ("DestinationAcceptanceTest", LEGACY_ACCEPTANCE),
    ):
        parts.append(f"## Airbyte's {title}\n")
        parts.append(_scenario_table(scenarios, by_name))
        used |= {function_name(scenario) for scenario in scenarios}
    own = [case for case in cases if case.name not in used]
    for module in sorted({case.module for case in own}):
        parts.append(f"## {module.removeprefix('test_').replace('_', ' ').capitalize()}\n")
        parts.append(_table(_rows(case for case in own if case.module == module)))
    parts.append("## Not here, and why\n")
    parts.append("\n".join(f"* **{key}**: {reason}" for key, reason in REASONS.items()) + "\n")
    return "\n".join(parts)


def _scenario_table(scenarios: Mapping[str, str], cases: Mapping[str, Case]) -> str:
    rows = []
    for scenario, entry in scenarios.items():
        case = cases.get(played_by(scenario, entry))
        if entry in REASONS:
            rows.append([f"`{scenario}`", f"not here: {entry}", *([""] * len(_KINDS))])
        elif case is not None:
            rows.append([f"`{scenario}`", case.says, *case.cells()])
        else:
            rows.append([f"`{scenario}`", "not run", *([""] * len(_KINDS))])
    return _table(rows)


def _rows(cases: Iterable[Case]) -> list[list[str]]:
    ordered = sorted(cases, key=lambda case: case.name)
    return [[_words(case.name), case.says, *case.cells()] for case in ordered]


def _words(name: str) -> str:
    return re.sub(r"_s(?=_|$)", "'s", name.removeprefix("test_")).replace("_", " ")


def _table(rows: Sequence[Sequence[str]]) -> str:
    heading = ["scenario", "what is seen", *(kind.name for kind in _KINDS)]
    lines = [heading, ["---", "---", *([":---:"] * len(_KINDS))], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"
