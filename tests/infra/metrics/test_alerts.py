"""The alert rules: of metrics that are exported, and firing when they should, says promtool."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from savepoints.cli.main import cli
from tests import draw
from tests.infra.metrics.promql import INFRA, LABELS, promtool, series, unknown

HERE = Path(__file__).parent
ALERTS = INFRA / "alerts.yml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]
CASES = sorted(HERE.glob("*_test.yml"))


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_reads_what_is_exported_and_names_labels_that_it_has(rule: dict[str, Any]) -> None:
    read = series(rule["expr"])
    assert read
    assert unknown(rule["expr"]) == set()
    said = " ".join(rule["annotations"].values())
    shown = set(re.findall(r"\$labels\.(\w+)", said))
    assert shown <= set[str]().union(*(LABELS[name] for name in read))


def test_every_metric_has_an_alert() -> None:
    assert set[str]().union(*(series(rule["expr"]) for rule in RULES)) == set(LABELS)


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_what_it_tells_somebody_to_type_is_a_command(rule: dict[str, Any]) -> None:
    said = re.sub(r"\{\{ \$labels\.query \}\}", "clicks", rule["annotations"]["description"])
    commands = re.findall(r"`savepoints ([^`]+)`", said)
    assert commands
    for words in map(shlex.split, commands):
        command: click.Command | None = cli
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(cli), words.pop(0))
        assert command is not None, said
        command.make_context(command.name, words)  # parses, and runs nothing


def test_promtool_accepts_the_rules() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", ALERTS)


@draw.taking_turns("alerts on figures", "conditional writes at once")
@pytest.mark.parametrize("cases", draw.some(1, CASES, "alerts"), ids=lambda path: path.stem)
def test_the_alerts_fire_on_given_figures_and_no_others_do(cases: Path) -> None:
    """Of each alert: `promtool test rules` fails a case if one more or one less fires."""
    promtool("test", "rules", cases)


def test_every_alert_fires_in_some_case_on_series_that_are_exported() -> None:
    text = "".join(path.read_text() for path in CASES)
    assert set(re.findall(r'labels: .\{alertname="(\w+)"', text)) == set(NAMES)
    given = re.findall(r"series: '([^']*)'", text)
    assert {wrong for one in given for wrong in unknown(one)} == set()
