"""Help: every command has it, every example in it is right, and it comes at once."""

from __future__ import annotations

import importlib
import math
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from savepoints.cli.main import _SECTIONS, cli, meaning

ROOT = Path(__file__).parents[2]
COMMANDS = [name for names in _SECTIONS.values() for name in names]
# Where a shell's own part of an example begins.
_OF_THE_SHELL = {"|", ">", ">>", "&&", ";"}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Give every command, and those below it, with its path."""
    waiting = [(name, cli.get_command(click.Context(cli), name)) for name in COMMANDS]
    while waiting:
        path, command = waiting.pop(0)
        if command is not None:
            yield path, command
            if isinstance(command, click.Group):
                waiting += [(f"{path} {name}", one) for name, one in command.commands.items()]


def examples(command: click.Command) -> list[list[str]]:
    """Return the words of each example in the help of a command."""
    _, _, text = (command.help or "").partition("Example")
    found = []
    for line in re.findall(r"^\s*savepoints (.+)$", text, re.MULTILINE):
        words = shlex.split(line, comments=True)
        ends = [number for number, word in enumerate(words) if word in _OF_THE_SHELL]
        found.append(words[: ends[0]] if ends else words)
    return found


def parse(words: list[str]) -> list[str]:
    """Parse a command line without running it, and return the commands that it goes through."""
    context = cli.make_context("savepoints", list(words))
    path: list[str] = []
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group):
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        path.append(str(found.name))
        context = found.make_context(found.name, list(rest), parent=context)
        command = found
    return path


def test_every_listed_command_has_a_module_of_its_name_and_the_other_way_round() -> None:
    modules = {
        path.stem.removesuffix("_")
        for path in (ROOT / "savepoints" / "cli" / "commands").glob("[a-z]*_.py")
    }
    assert modules == set(COMMANDS)
    for name in COMMANDS:
        module = importlib.import_module(f"savepoints.cli.commands.{name}_")
        assert meaning(name) == (module.__doc__ or "").splitlines()[0]
        assert meaning(name).endswith(".")
    for path, command in commands():
        assert path.split()[-1] == command.name


def test_every_example_can_be_parsed_and_is_about_its_command() -> None:
    count = 0
    for path, command in commands():
        found = examples(command)
        assert found or isinstance(command, click.Group), f"savepoints {path} has no example"
        for words in found:
            try:
                parsed = parse(words)
            except click.UsageError as error:
                pytest.fail(f"savepoints {' '.join(words)}: {error.format_message()}")
            assert " ".join(parsed).startswith(path), f"savepoints {' '.join(words)}"
            count += 1
    assert count >= 2 * len(COMMANDS) - 5


def test_the_examples_of_the_first_page_can_be_parsed() -> None:
    for words in examples(cli):
        parse(words)
    assert len(examples(cli)) == 3


@pytest.mark.parametrize(
    ("typed", "meant"), [("lst", "list"), ("rolback", "rollback"), ("xyz", "")]
)
def test_a_command_that_is_misspelled_gets_a_suggestion(typed: str, meant: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        parse([typed])

    said = refused.value.format_message()
    assert f"There is no command {typed!r}." in said
    assert (f"Did you mean {meant}" if meant else "") in said
    assert ("Did you mean" in said) == bool(meant)


def test_options_of_every_command_are_on_the_first_page_only() -> None:
    for path, command in commands():
        if isinstance(command, click.Group):
            continue
        page = command.get_help(click.Context(command, info_name=path))
        assert "--log-format" not in page, path
        assert page.endswith("Options common to all commands: savepoints --help"), path
    assert "--log-format" in cli.get_help(click.Context(cli))


def test_every_option_says_what_it_is_for() -> None:
    for path, command in commands():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"savepoints {path} {parameter.opts[0]}"


def cpu_seconds(arguments: Sequence[str]) -> float:
    """Return what a process needs of the processor, in user and system mode."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("words", [["--help"], ["list", "--help"], ["tag", "--help"]])
def test_help_comes_at_once(words: list[str]) -> None:
    # Both in turn, and the best of several: a machine that does other things too is slower, for
    # both alike. Beyond Python and click itself 0.2 s are allowed.
    bare, ours = math.inf, math.inf
    for _ in range(4):
        bare = min(bare, cpu_seconds(["-c", "import click"]))
        ours = min(
            ours, cpu_seconds(["-c", "from savepoints.cli.main import main; main()", *words])
        )
        # On a slow machine everything takes longer, click as well; on a fast one it takes 0.05 s.
        allowed = 0.2 * max(1.0, bare / 0.07)
        if ours - bare < allowed:
            return
    pytest.fail(f"{ours:.2f} s, of which click needs {bare:.2f}; {allowed:.2f} more are allowed")


def test_help_of_any_command_imports_nothing_heavy() -> None:
    code = f"""
import sys
from savepoints.cli.main import _run
from savepoints.cli.output import Terminal
for name in {COMMANDS!r}:
    assert _run(Terminal(), [name, "--help"]) == 0, name
heavy = ("pyspark", "py4j", "pandas", "pyarrow", "deltalake", "obstore", "boto3", "pydantic")
print(*[name for name in heavy if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stderr.split() == []
