"""A page that is wrong is noticed: a command that fails, an output that is another one."""

from pathlib import Path

import pytest

from integration_tests.documentation.shell import Shell, Step, StepFailed, steps

PAGE = """
Set it, and see it:

```sh
name=world
```

```sh
echo "hello $name"
echo aside >&2
```

It prints

```text
hello …
aside
```

```hcl
for = "reading"
```
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "bin").mkdir()
    return Shell(tmp_path, tmp_path / "bin", {"GREETING": "hi"})


def test_blocks_of_sh_are_steps_with_what_the_next_block_says_they_print() -> None:
    assert steps(PAGE) == [
        Step(4, "name=world\n"),
        Step(8, 'echo "hello $name"\necho aside >&2\n', "hello …\naside\n"),
    ]


def test_a_page_is_followed_in_one_shell(shell: Shell) -> None:
    assert shell.follow(steps(PAGE)) == ["", "hello world\naside\n"]


@pytest.mark.parametrize("printed", ["hello", "hello world", "hello world\naside\nmore", ""])
def test_another_output_is_a_failure_that_shows_both(shell: Shell, printed: str) -> None:
    with pytest.raises(StepFailed, match=r"line 8:\n(.|\n)*hello world\naside\n(.|\n)*and not\n"):
        shell.follow([Step(8, "echo hello world; echo aside", printed)])


@pytest.mark.parametrize("commands", ["false", "false | cat", "echo $unset", "exit 1"])
def test_a_command_that_fails_ends_the_page(shell: Shell, commands: str) -> None:
    with pytest.raises(StepFailed, match="line 2: exit code"):
        shell.follow([Step(1, "true"), Step(2, f"{commands}\n"), Step(3, "touch later")])

    assert not (shell.folder / "later").exists()


def test_nothing_that_reaches_aws_is_inherited(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a developer's")

    [variables] = shell.follow([Step(1, "env")])

    assert "a developer's" not in variables
    assert "GREETING=hi" in variables
