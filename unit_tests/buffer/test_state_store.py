"""Lines of states: some in memory, the rest on disk, deleted with the last of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.buffer.backlog import StateStore


def test_lines_beyond_the_memory_bound_are_on_disk(tmp_path: Path) -> None:
    store = StateStore(tmp_path, memory_bytes=10, file_bytes=100)

    kept = [store.keep(b"%d" % number * 4) for number in range(5)]

    assert (store.memory_bytes, store.disk_bytes) == (8, 12)
    assert [line.read() for line in kept] == [b"0000", b"1111", b"2222", b"3333", b"4444"]


def test_a_line_larger_than_the_memory_bound_is_on_disk(tmp_path: Path) -> None:
    store = StateStore(tmp_path, memory_bytes=10, file_bytes=100)

    line = store.keep(b"x" * 1000)

    assert (store.memory_bytes, store.disk_bytes, line.read()) == (0, 1000, b"x" * 1000)


def test_a_file_is_deleted_with_its_last_line(tmp_path: Path) -> None:
    store = StateStore(tmp_path, memory_bytes=0, file_bytes=8)
    kept = [store.keep(b"abcd") for _ in range(5)]
    assert len(list(tmp_path.iterdir())) == 3

    for line in kept[1:4]:
        line.release()

    assert (store.disk_bytes, len(list(tmp_path.iterdir()))) == (12, 2)
    kept[0].release()
    kept[4].release()
    assert (store.disk_bytes, list(tmp_path.iterdir())) == (0, [])


@given(happenings=st.lists(st.one_of(st.binary(max_size=20), st.integers(0, 10))))
def test_stored_lines_are_read_unchanged_in_any_release_order(
    happenings: list[bytes | int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = StateStore(tmp_path_factory.mktemp("states"), memory_bytes=30, file_bytes=40)
    kept = []
    for happening in happenings:
        if isinstance(happening, bytes):
            kept.append((happening, store.keep(happening)))
        elif happening < len(kept):
            kept.pop(happening)[1].release()
        assert all(line.read() == text for text, line in kept)
        assert store.memory_bytes <= 30
    for _, line in kept:
        line.release()
    assert (store.memory_bytes, store.disk_bytes) == (0, 0)
