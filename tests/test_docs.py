"""The documents say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from savepoints import errors
from savepoints.cli.main import cli
from savepoints.config.settings import Settings
from tests import tier

ROOT = Path(__file__).parents[1]


def all_errors(root: type[errors.SavepointsError]) -> list[type[errors.SavepointsError]]:
    """Return an error and everything below it."""
    return [root, *(one for child in root.__subclasses__() for one in all_errors(child))]


def test_the_page_of_exit_codes_lists_every_error_with_its_code() -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
    listed = {
        (name, int(code))
        for code, names in re.findall(r"^\| (\d+) \|[^|]*\|([^|]*)\|$", page, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert listed == {(one.__name__, one.exit_code) for one in all_errors(errors.SavepointsError)}


def test_the_tree_in_the_docstring_of_errors_is_the_tree() -> None:
    lines = re.findall(r"^[│ ]*[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE)
    assert sorted(lines) == sorted(
        one.__name__ for one in all_errors(errors.SavepointsError) if one.__bases__ != (Exception,)
    )


def test_commands_and_options_in_the_documents_exist() -> None:
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "changes").glob("*.md"),
        *(ROOT / ".github").rglob("*.yml"),
    ]
    found = 0
    for page in pages:
        for line in re.findall(
            r"^\$ savepoints (.+)$|`savepoints ([a-z][^`]*)`", page.read_text(), re.MULTILINE
        ):
            words = (line[0] or line[1]).split()
            for name in words[0].rstrip(",").split(","):
                command = commands.get(name)
                assert command is not None, f"{page.name}: savepoints {name}"
                if isinstance(command, click.Group) and words[1:]:
                    command = command.commands[words[1]]
                options = {option for param in command.params for option in param.opts}
                used = {word for word in words if word.startswith("--")}
                assert used <= options, f"{page.name}: {used - options} of savepoints {name}"
                found += 1
    assert found > 15


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{page.name}-{number}")
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for number, block in enumerate(
            re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        )
        if re.search(r"^store = ", block, re.MULTILINE)
    ],
)
def test_a_whole_file_of_settings_in_the_documents_is_valid(block: str, tmp_path: Path) -> None:
    (tmp_path / "savepoints.toml").write_text(block)

    found = Settings.load(tmp_path / "savepoints.toml")

    assert found.store
    assert all(one.outputs for one in found.queries.values())


def test_every_target_of_the_readme_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z-]+)", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"


def test_every_part_of_the_nightly_tier_has_a_job_and_a_line_in_the_page() -> None:
    workflow = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    jobs = re.findall(r"^ {10}- ([a-z0-9-]+)$", workflow, re.MULTILINE)
    assert jobs == list(tier.NIGHTLY)
    page = (ROOT / "docs" / "testing.md").read_text()
    named = re.findall(r"`([a-z0-9-]+)`", page)
    assert {name.rstrip("-0123456789") for name in jobs} <= {
        name.rstrip("-0123456789") for name in named
    }


def test_trap_the_runbook_named_an_alert_that_nobody_sends() -> None:
    sent = re.findall(r"- alert: (\w+)", (ROOT / "infra/metrics/alerts.yml").read_text())
    named = re.findall(r"alert is `(\w+)`", (ROOT / "docs/runbook.md").read_text())
    assert named
    assert set(named) <= set(sent)
