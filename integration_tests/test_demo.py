"""`make demo KEEP=1`: a user at a terminal asks the demo's lake, leaves it, and nothing of it goes on running."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from integration_tests.documentation.blocks import block, blocks

ROOT = Path(__file__).parents[1]
PATIENCE = 240.0
TUTORIAL = "docs/tutorial/first-query.md"


class Terminal:
    """A demo in a terminal, of which all that is printed is kept."""

    def __init__(self, folder: Path) -> None:
        self._user, terminal = pty.openpty()
        self.mark = uuid4().hex
        self.demo = subprocess.Popen(
            [sys.executable, "-m", "demo"],
            cwd=folder,
            env=environment(self.mark),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=_like_a_shell,
        )
        os.close(terminal)
        self.printed = ""
        self._waited = 0

    def wait_for(self, text: str) -> None:
        """Read on until there is this text, behind the one that was last waited for."""
        ended_by = time.monotonic() + PATIENCE
        while (position := self.printed.find(text, self._waited)) < 0:
            assert time.monotonic() < ended_by, self.printed
            try:
                self.printed += os.read(self._user, 65536).decode(errors="replace")
            except OSError:  # Linux: the other side has gone.
                raise AssertionError(f"the demo ended before {text!r}:\n{self.printed}") from None
        self._waited = position + len(text)

    def type(self, text: str) -> None:
        os.write(self._user, text.encode())

    def leave(self, key: str) -> int:
        """Press a key, and once more if nothing comes of it; read what is left, and return the exit code.

        Python's prompt loses a Ctrl-C that comes before it waits for keys.
        """
        ended_by = time.monotonic() + PATIENCE
        self.type(key)
        while not select.select([self._user], [], [], 5)[0]:
            assert time.monotonic() < ended_by, self.printed
            self.type(key)
        with suppress(OSError):
            while chunk := os.read(self._user, 65536):
                self.printed += chunk.decode(errors="replace")
        os.close(self._user)
        return self.demo.wait(PATIENCE)


def _like_a_shell() -> None:
    """Have Ctrl-C be sent to this process's session, and heard also where tests are run in the background."""
    os.close(os.open(os.ttyname(0), os.O_RDWR))
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def environment(mark: str) -> Mapping[str, str]:
    return {**os.environ, "KEEP": "1", "PYTHONPATH": str(ROOT), "DEMO_MARK": mark, "TERM": "dumb"}


def processes(mark: str) -> Iterator[str]:
    """Yield the command line of each process that the demo has started, or its children."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("DEMO_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield " ".join(process.cmdline())


@pytest.mark.slow
@pytest.mark.parametrize("key", ["\x04", "\x03"], ids=["Ctrl-D", "Ctrl-C"])
def test_a_user_asks_the_lake_at_a_prompt_and_leaves_nothing_running(tmp_path: Path, key: str) -> None:
    terminal = Terminal(tmp_path)
    terminal.wait_for("\nD ")
    terminal.type("select 'rows: ' || count(*)\n")
    terminal.type("from orders join customers on customers.id = customer_id;\n")
    terminal.wait_for("rows: 30000")
    # DuckDB takes a Ctrl-C for a statement that still runs, and a Ctrl-D is lost when readline takes the terminal over.
    terminal.wait_for("\nD ")

    assert terminal.leave(key) == 0, terminal.printed
    assert [*processes(terminal.mark)] == []
    page = tmp_path / "build" / "demo.html"
    assert page.as_uri() in terminal.printed.replace("\r\n", "")
    assert "All 3 tables are healthy" in page.read_text()


@pytest.mark.slow
def test_statements_that_are_piped_are_answered_in_order_and_errors_end_nothing(tmp_path: Path) -> None:
    mark = uuid4().hex
    statements = """select nothing;
select 6 * 7 as "it's"; from airbyte_sync_reports
select stream_name where row_count > 29999"""

    done = subprocess.run(
        [sys.executable, "-m", "demo"],
        cwd=tmp_path,
        env=environment(mark),
        input=statements,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    answered = done.stdout[done.stdout.rindex("DuckDB ──") :]
    assert re.search(r"Binder Error.*│ +42 │.*│ orders ", answered, re.DOTALL), answered
    assert [*processes(mark)] == []


def follow(commands: str, stdin: str = "") -> str:
    """Run commands of the tutorial in the repository; return what they print on stdout."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=ROOT,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(4 * PATIENCE)
def test_the_tutorial_s_statements_print_its_tables() -> None:
    section = "4. Query the tables"
    statements = "".join(statement.body for statement in blocks(TUTORIAL, section, "sql"))

    printed = follow(block(TUTORIAL, "2. Run the demo", "sh").body, statements)

    assert [output.body for output in blocks(TUTORIAL, section, "text") if output.body not in printed] == []
    answered = printed[printed.rindex("DuckDB ──") :]
    assert answered.count(" finished ") == 3, answered
    for line in block(TUTORIAL, "3. Read the output of the demo", "text").body.splitlines():
        assert line in printed.replace("┃", "│")


@pytest.mark.slow
@pytest.mark.timeout(4 * PATIENCE)
def test_the_tutorial_s_other_demos_succeed() -> None:
    printed = follow(block(TUTORIAL, "5. Change something", "sh").body)

    assert printed.count("60,000 records") == 2
