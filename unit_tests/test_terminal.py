"""What commands print: tables on narrow terminals, readers that leave, and command lines with an option twice."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from destination_datalake import terminal
from destination_datalake.cli import _COMMANDS, _USER_COMMANDS, _parser

SYNC = ("2026-11-20T12:00:01", "partial", "2/3", "1,000,000", "999,997", "3", "1,024.5", "3 min")
ERROR = "Cannot write to table shop.orders: lakeformation:GetDataAccess was denied."


class Screen(io.TextIOWrapper):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Return the lines, without colours."""
        assert isinstance(self.buffer, io.BytesIO)
        return re.sub(r"\x1b\[[0-9;]*m", "", self.buffer.getvalue().decode()).splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_a_table_breaks_no_word_however_narrow_the_terminal_is(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = terminal.table("started (UTC)", "status", "streams", "received", "rows", "rejects", "MB", "took", "failure")
    rows.add_row(*SYNC, terminal.text(ERROR))

    screen = Screen(io.BytesIO())
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", screen)
    terminal.write_table(rows)

    lines = screen.lines()
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert {*" ".join(SYNC).split(), *ERROR.split()} <= {*words}, lines
    assert len(lines) <= 8


def test_a_table_in_a_pipe_is_as_wide_as_its_longest_words(capfd: pytest.CaptureFixture[str]) -> None:
    rows = terminal.table("table", "problem")
    rows.add_row("orders", "x" * 400)

    terminal.write_table(rows)

    assert "x" * 400 in capfd.readouterr().out


def test_a_reader_that_leaves_ends_the_command_as_sigpipe_would() -> None:
    reader, writer = os.pipe()
    os.close(reader)

    with os.fdopen(writer, "w") as out, pytest.raises(SystemExit, match="141"):
        terminal.put(out, "x" * 100_000)


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_help_names_the_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    def show() -> None:
        if command not in _USER_COMMANDS:
            _parser().parse_args([command, "--help"])
        module, function = _USER_COMMANDS[command]
        getattr(import_module(f"destination_datalake.{module}"), function)(["--help"])

    with pytest.raises(SystemExit, match="0"):
        show()

    help_text = " ".join(capsys.readouterr().out.split())
    assert "exit code is 0" in help_text
    assert "2 for an invalid command line" in help_text
    assert command != "check" or "the exit code is 0 for both" in help_text


@pytest.mark.parametrize("option", ["--config", "--days"])
def test_an_option_that_is_given_twice_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = terminal.parser("history", "", "")
    terminal.add_days(parser)

    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--config", "a.json", "--days", "30", option, "30"])

    assert f"argument {option}: is set twice" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["write --catalog /dev/null", "verify --all"])
def test_a_configuration_can_be_a_pipe(command: str) -> None:
    """As from `--config <(…)`: a pipe can be read only once."""
    read_end, write_end = os.pipe()
    os.write(write_end, b'{"misspelt_option": 1}')
    os.close(write_end)
    arguments = [*command.split(), "--config", f"/dev/fd/{read_end}"]

    ended = subprocess.run(
        [sys.executable, "-m", "destination_datalake.cli", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        pass_fds=[read_end],
        check=False,
        timeout=60,
    )
    os.close(read_end)

    said = (ended.stdout + ended.stderr).decode()
    assert (ended.returncode, "is empty" in said) == (1, False), said
    assert "lakeformation_database_name" in said


@pytest.mark.parametrize("seconds", [0.0, 0.2])
def test_a_command_that_is_terminated_while_spark_starts_leaves_no_files(seconds: float, tmp_path: Path) -> None:
    config, temporary = tmp_path / "config.json", tmp_path / "temporary"
    config.write_text("{}")
    temporary.mkdir()
    arguments = ["verify", "--all", "--config", str(config)]
    command = subprocess.Popen(
        [sys.executable, "-m", "destination_datalake.cli", *arguments],
        env=os.environ | {"TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
    )
    while not [*temporary.iterdir()]:
        assert command.poll() is None
        time.sleep(0.01)
    time.sleep(seconds)
    command.terminate()
    command.communicate(timeout=60)

    assert command.returncode in (1, 143)
    assert [*temporary.iterdir()] == []
