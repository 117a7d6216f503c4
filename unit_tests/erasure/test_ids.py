"""Files of ids: what is an id, of which type, and which values are found by them."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.config.options import Config
from destination_datalake.erasure import ids as ids_module
from destination_datalake.erasure.command import encrypting
from destination_datalake.erasure.ids import IdsFile
from destination_datalake.errors import ConfigError
from destination_datalake.files.ids import HashedIds, digests_of, new_salt
from destination_datalake.spark.classic.settings import ClassicSettings
from unit_tests.config.examples import options
from unit_tests.examples import examples

SECONDS = pa.timestamp("us", "UTC")


@pytest.fixture
def file(tmp_path: Path) -> IdsFile:
    return IdsFile(tmp_path / "ids.txt")


def typed(file: IdsFile, content: bytes, type_: pa.DataType) -> Any:
    file.path.write_bytes(content)
    return file.typed(type_, "user_id")


@pytest.mark.parametrize(
    ("type_", "line", "value"),
    [
        (pa.string(), b"anna@example.com", "anna@example.com"),
        (pa.string(), b" 42", " 42"),
        (pa.string(), "Zoë\u2028y".encode(), "Zoë\u2028y"),
        (pa.int32(), b"-7", -7),
        (pa.int64(), b"9223372036854775807", 2**63 - 1),
        (pa.float64(), b"0.1", 0.1),
        (pa.float64(), b"1e3", 1000.0),
        (pa.float32(), b"0.1", np.float32(0.1)),
        (pa.decimal128(10, 2), b"3.5", Decimal("3.50")),
        (pa.bool_(), b"true", True),
        (pa.date32(), b"2026-11-25", date(2026, 11, 25)),
        (SECONDS, b"2026-11-25T12:00:00Z", datetime(2026, 11, 25, 12, tzinfo=UTC)),
        (SECONDS, b"2026-11-25T12:00:00+01:00", datetime(2026, 11, 25, 11, tzinfo=UTC)),
        (pa.timestamp("us"), b"2026-11-25 12:00:00.000001", datetime(2026, 11, 25, 12, 0, 0, 1)),
    ],
)
def test_an_id_is_found_as_a_value_of_the_column(file: IdsFile, type_: Any, line: bytes, value: Any) -> None:
    ids = pickle.loads(pickle.dumps(typed(file, line + b"\n", type_)))

    assert len(ids) == 1
    assert ids.contains(pa.array([None, value], type_)).tolist() == [False, True]


@pytest.mark.parametrize(
    ("type_", "line"),
    [
        (pa.int32(), b"2147483648"),
        (pa.int64(), b"9223372036854775808"),
        (pa.int64(), b"42.0"),
        (pa.int64(), b"007"),
        (pa.int64(), b" 4242"),
        (pa.int64(), b"anna"),
        (pa.float64(), b"9007199254740993"),
        (pa.float64(), b"nan"),
        (pa.float32(), b"16777217"),
        (pa.decimal128(10, 2), b"3.555"),
        (pa.bool_(), b"1"),
        (pa.date32(), b"2026-11-25T12:00:00"),
        (SECONDS, b"2026-11-25T12:00:00"),
        (SECONDS, b"2026-11-25T12:00:00.0000001Z"),
        (pa.string(), b"\xff\xfe"),
    ],
)
def test_an_id_that_the_column_cannot_hold_is_refused_by_its_line_and_not_shown(
    file: IdsFile, type_: Any, line: bytes
) -> None:
    good = {pa.bool_(): b"true", pa.date32(): b"2026-01-01", SECONDS: b"2026-01-01T00:00:00Z"}.get(type_, b"1")

    with pytest.raises(ConfigError, match="line 4:") as refused:
        typed(file, good + b"\n\n" + good + b"\r\n" + line + b"\n", type_)

    shown = str(refused.value).replace(str(file.path), "")
    assert line.decode(errors="replace") not in shown
    assert refused.value.__cause__ is None


def test_a_nested_column_has_no_ids(file: IdsFile) -> None:
    with pytest.raises(ConfigError, match="cannot be IDs"):
        typed(file, b"1", pa.list_(pa.int64()))


@pytest.mark.parametrize("content", [b"", b"\n\r\n\n", b"\xef\xbb\xbf\n"])
def test_a_file_without_ids_is_refused(file: IdsFile, content: bytes) -> None:
    file.path.write_bytes(content)

    with pytest.raises(ConfigError, match="the file contains no IDs"):
        file.require()


def test_a_file_that_is_not_there_is_refused(file: IdsFile) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read --ids-file .*: No such file"):
        file.require()


def test_lines_may_end_as_windows_writes_them_and_the_file_begin_with_a_mark(file: IdsFile) -> None:
    ids = typed(file, b"\xef\xbb\xbfa\r\nb\r\n\r\nc", pa.string())

    assert len(ids) == 3
    assert ids.contains(pa.array(["a", "b", "c", "", "a\r"])).tolist() == [True, True, True, False, False]


def test_an_id_is_found_in_files_from_before_the_column_was_widened(file: IdsFile) -> None:
    assert typed(file, b"7\n", pa.int64()).contains(pa.array([7, 8], pa.int32())).tolist() == [True, False]
    assert typed(file, b"0\n", pa.float64()).contains(pa.array([-0.0, None], pa.float32())).tolist() == [True, False]


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1)), st.data())
@settings(max_examples=examples(100))
def test_exactly_the_ids_are_found(
    tmp_path_factory: pytest.TempPathFactory, chosen: list[str], data: st.DataObject
) -> None:
    chosen = [id_ for id_ in chosen if not id_.startswith("\ufeff")]
    values = data.draw(st.lists(st.none() | st.text(max_size=3) | st.sampled_from(chosen or ["x"])))
    file = IdsFile(tmp_path_factory.mktemp("ids") / "ids.txt")
    file.path.write_text("\n".join(chosen), newline="")
    expected = [value in set(chosen) for value in values]

    ids = file.typed(pa.string(), "user_id")

    assert len(ids) == len(set(chosen))
    assert ids.contains(pa.array(values, pa.string())).tolist() == expected


@pytest.mark.parametrize(("most", "limit"), [("MAX_IDS", 2), ("MAX_BYTES", 5)])
def test_a_file_of_too_many_ids_is_refused(
    file: IdsFile, monkeypatch: pytest.MonkeyPatch, most: str, limit: int
) -> None:
    monkeypatch.setattr(ids_module, most, limit)
    file.path.write_bytes(b"1\n2\n3\n")

    with pytest.raises(ConfigError, match="Split the file, and run the command once for each part"):
        file.require()


@pytest.mark.parametrize(("given", "wanted"), [({}, "true"), ({"spark.io.encryption.enabled": "false"}, "false")])
def test_spark_encrypts_files_that_have_ids_unless_the_options_say_otherwise(
    given: dict[str, str], wanted: str
) -> None:
    config = Config.parse(options(spark={"mode": "local", "conf": given}))

    settings = ClassicSettings.from_config(encrypting(config))

    assert settings.properties(Path("/tmp/scratch"))["spark.io.encryption.enabled"] == wanted
    assert not settings.needs_launcher


@pytest.mark.parametrize(
    ("lowest", "highest", "may_be"), [(0, 4, False), (4, 5, True), (6, 89, False), (91, 95, False)]
)
def test_a_row_group_between_two_ids_is_left_out(
    file: IdsFile, tmp_path: Path, lowest: int, highest: int, may_be: bool
) -> None:
    ids = typed(file, b"5\n90\n", pa.int64())
    pq.write_table(pa.table({"user_id": [lowest, highest]}), tmp_path / "f.parquet")
    group = pq.ParquetFile(tmp_path / "f.parquet").metadata.row_group(0)

    assert ids.may_be_in(group, "user_id") is may_be
    assert not ids.may_be_in(group, None)


def test_hashes_with_a_salt_tell_who_is_left_out_and_are_no_ids(file: IdsFile) -> None:
    file.path.write_bytes(b"17\n18\n")
    salt = new_salt()
    hashed = HashedIds.from_digests(b"".join(file.digests(pa.int32(), "user_id", salt)), salt)

    assert len(hashed) == 2
    assert hashed.contains(pa.array([18, 19, None, 17], pa.int64())).tolist() == [True, False, False, True]
    assert hashed.contains(pa.array(["17", "18"])).tolist() == [False, False]
    assert not HashedIds(new_salt(), hashed.digests).contains(pa.array([17])).any()
    assert digests_of(pa.array([17]), salt) != digests_of(pa.array([17]), new_salt())
    assert not HashedIds.from_digests(b"", salt).contains(pa.array([17])).any()
