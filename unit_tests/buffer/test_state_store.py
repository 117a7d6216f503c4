"""Lines that wait: a few in memory, the rest on disk, none for longer than anybody wants it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.buffer.state_store import StateStore


def test_lines_beyond_a_little_memory_wait_on_disk(tmp_path: Path) -> None:
    held = StateStore(tmp_path, memory_bytes=10, file_bytes=100)

    kept = [held.keep(b"%d" % number * 4) for number in range(5)]

    assert (held.memory_bytes, held.disk_bytes) == (8, 12)
    assert [line.read() for line in kept] == [b"0000", b"1111", b"2222", b"3333", b"4444"]


def test_a_line_larger_than_the_memory_waits_on_disk(tmp_path: Path) -> None:
    held = StateStore(tmp_path, memory_bytes=10, file_bytes=100)

    line = held.keep(b"x" * 1000)

    assert (held.memory_bytes, held.disk_bytes, line.read()) == (0, 1000, b"x" * 1000)


def test_a_file_goes_with_its_last_line(tmp_path: Path) -> None:
    held = StateStore(tmp_path, memory_bytes=0, file_bytes=8)
    kept = [held.keep(b"abcd") for _ in range(5)]
    assert len(list(tmp_path.iterdir())) == 3

    for line in kept[1:4]:
        line.release()

    assert (held.disk_bytes, len(list(tmp_path.iterdir()))) == (12, 2)
    kept[0].release()
    kept[4].release()
    assert (held.disk_bytes, list(tmp_path.iterdir())) == (0, [])


@given(happenings=st.lists(st.one_of(st.binary(max_size=20), st.integers(0, 10))))
def test_lines_come_back_as_they_were_however_they_leave(
    happenings: list[bytes | int], tmp_path_factory: object
) -> None:
    held = StateStore(Path(tmp_path_factory.mktemp("held")), memory_bytes=30, file_bytes=40)  # type: ignore[attr-defined]
    kept = []
    for happening in happenings:
        if isinstance(happening, bytes):
            kept.append((happening, held.keep(happening)))
        elif happening < len(kept):
            kept.pop(happening)[1].release()
        assert all(line.read() == text for text, line in kept)
        assert held.memory_bytes <= 30
    for _, line in kept:
        line.release()
    assert (held.memory_bytes, held.disk_bytes) == (0, 0)
