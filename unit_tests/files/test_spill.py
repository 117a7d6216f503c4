"""Rows on the local disk: what comes back, and what a folder holds meanwhile and after."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.files.block_tables import Rows
from destination_datalake.files.sorting import Spill, SpillFailed

added_rows = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9)), max_size=5)


def rows(*numbers: int) -> Rows:
    table = pa.table({"number": pa.array(numbers, pa.int64())})
    return Rows(table, table.nbytes)


def numbers(tables: list[Rows]) -> list[object]:
    return [number for rows in tables for number in rows.table.column("number").to_pylist()]


@given(runs=st.lists(added_rows, max_size=4), taken_first=st.sampled_from(["a", "b", None]))
def test_rows_of_a_partition_come_back_once_in_the_order_in_which_they_were_added(
    runs: list[list[tuple[str | None, int]]], taken_first: str | None
) -> None:
    spill = Spill()
    for run in runs:
        for name, number in run:
            spill.add((name,), Rows(rows(0, number, 1).table.slice(1, 1), 8))
        spill.end_run()

    taken: dict[str | None, list[object]] = {taken_first: numbers(spill.take((taken_first,)))}
    assert spill.take((taken_first,)) == []
    taken |= {str(name) if name else None: numbers(tables) for (name,), tables in spill.take_all()}

    added = [added for run in runs for added in run]
    assert {name: values for name, values in taken.items() if values} == {
        name: [number for partition, number in added if partition == name] for name in {name for name, _ in added}
    }
    assert [*spill.take_all()] == []


def test_partitions_are_identified_by_the_text_of_their_values() -> None:
    spill = Spill()
    for value in (0.0, -0.0, math.nan, float("nan")):
        spill.add((value,), rows(1))
    spill.end_run()

    assert [(repr(values), len(numbers(tables))) for values, tables in spill.take_all()] == [
        ("(0.0,)", 1),
        ("(-0.0,)", 1),
        ("(nan,)", 2),
    ]


def test_bytes_of_a_partition_are_its_size_in_memory() -> None:
    spill = Spill()
    assert spill.bytes_of(("a",)) == 0
    spill.add(("a",), rows(1, 2))
    spill.end_run()
    spill.add(("a",), rows(3))
    spill.end_run()

    assert spill.bytes_of(("a",)) == 3 * 8


def test_runs_can_have_different_schemas() -> None:
    spill = Spill()
    spill.add((), rows(1))
    spill.end_run()
    spill.add((), Rows(pa.table({"number": ["wider"]}), 5))
    spill.end_run()

    assert numbers(spill.take(())) == [1, "wider"]


def test_files_have_no_name_that_a_killed_process_could_leave(tmp_path: Path) -> None:
    spill = Spill(tmp_path)
    spill.add((), rows(*range(100_000)))
    assert [*tmp_path.iterdir()] == []
    spill.end_run()
    assert [*tmp_path.iterdir()] == []

    # Then what was read outlives the spill
    tables = spill.take(())
    spill.close()
    assert numbers(tables) == [*range(100_000)]


def test_spill_can_be_closed_in_the_middle_of_a_run_and_twice() -> None:
    spill = Spill()
    spill.add((), rows(1))

    spill.close()
    spill.close()


def test_spark_s_folder_for_temporary_files_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'nowhere'}")

    with pytest.raises(SpillFailed, match=r"nowhere\) failed: No such file or directory\. Set TMPDIR"):
        Spill().add((), rows(1))


def test_full_disk_has_a_sentence_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Path("/dev/full").open("w+b"))  # noqa: SIM115
    spill = Spill()

    with pytest.raises(SpillFailed, match=r"is full\. Set TMPDIR .* or lower batch_size_mb"):
        spill.add((), rows(*range(200_000)))

    spill.close()
