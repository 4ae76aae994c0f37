"""What is refused before a restored query is run on; no JVM, for nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import UsageError
from savepoints.operations.rollback import run_to_point

APP = """
from savepoints.runtime.app import App, Input, Output

app = App(
    name="{name}",
    inputs={{"orders": Input("orders", lambda frame: frame, "id", "at")}},
    build=lambda inputs: inputs["orders"],
    outputs={{"totals": Output(mode="append")}},
)
"""


@pytest.mark.parametrize(
    ("module", "text", "tables", "message"),
    [
        ("of_another", APP.format(name="visits"), {"totals": "/t"}, "is the application 'visits'"),
        ("without_table", APP.format(name="orders"), {"sums": "/s"}, "'totals' of orders has no t"),
        ("broken", "1 / 0", {"totals": "/t"}, "ZeroDivisionError: division by zero"),
        (
            "half",
            "from savepoints.runtime.app import Nothing",
            {"totals": "/t"},
            "cannot import name",
        ),
    ],
)
def test_what_cannot_run_the_query_on_is_refused_in_the_plan(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    text: str,
    tables: dict[str, str],
    message: str,
) -> None:
    name = f"advance_{module}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    bound = QuerySettings(app="a:b", checkpoints=str(tmp_path), outputs=tables)
    settings = Settings(queries={"orders": bound})

    with pytest.raises(UsageError, match=message):
        run_to_point.application_of("orders", settings, f"{name}:app", rewind_outputs=True)


def test_what_fits_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "advance_right.py").write_text(APP.format(name="orders"))
    monkeypatch.syspath_prepend(tmp_path)
    bound = QuerySettings(app="a:b", checkpoints=str(tmp_path), outputs={"totals": "/t"})
    settings = Settings(queries={"orders": bound})

    run_to_point.application_of("orders", settings, "advance_right:app", rewind_outputs=True)
    with pytest.raises(UsageError, match="the query's outputs, which must be rewound"):
        run_to_point.application_of("orders", settings, "advance_right:app", rewind_outputs=False)
