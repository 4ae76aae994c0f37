"""The dashboard: it shows every metric that is exported, and asks for no other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.infra.metrics.promql import INFRA, LABELS, promtool, series, unknown

DASHBOARD: dict[str, Any] = json.loads((INFRA / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_reads_what_is_exported_of_the_queries_that_were_chosen(
    panel: dict[str, Any],
) -> None:
    assert expressions(panel)
    for expression in expressions(panel):
        assert unknown(expression) == set()
        read = re.findall(r"\bsavepoints_\w+", expression)
        assert read
        assert expression.count('query=~"$query"') == len(read)


def test_every_metric_is_in_a_panel() -> None:
    shown = set[str]().union(*(series(one) for panel in PANELS for one in expressions(panel)))
    assert shown == set(LABELS)


def test_the_choices_of_a_query_come_from_what_is_exported() -> None:
    chosen = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    asked = chosen["query"]["query"]["query"]
    name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", asked).groups()  # type: ignore[union-attr]
    assert label in LABELS[name]
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS))) == set(chosen)


def test_no_panel_lies_over_another() -> None:
    places = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(places) == len(set(places))
    assert max(x for x, _ in places) < 24
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_promtool_accepts_what_the_panels_ask(tmp_path: Path) -> None:
    """As rules that record, after Grafana has put in the query."""
    asked = [one.replace("$query", "clicks") for panel in PANELS for one in expressions(panel)]
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(asked)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(asked)} rules found" in promtool("check", "rules", file)
