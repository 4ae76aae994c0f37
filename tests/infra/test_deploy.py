"""What `infra/` has for deployment, with the real tools where they are: helm, systemd, Airflow.

A tool that is missing skips its test; helm is built from the Go module proxy, as the second S3
server is, and Airflow gets an environment of its own below `build/`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from savepoints.cli.main import cli
from savepoints.errors import (
    LockedError,
    QueryRunningError,
    UnfinishedOperationError,
    UnreachableError,
    UsageError,
    VerificationError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local.cache import cache_directory
from savepoints.operations.inspect.sampling import ReadSubset
from tests.samples import take, unpack

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
CHART = INFRA / "helm" / "savepoints"
HELM = "helm.sh/helm/v3/cmd/helm@v3.18.4"
AIRFLOW = "apache-airflow>=3,<3.2"


def parsed(words: list[str]) -> None:
    """Parse the words after `savepoints` as the command line does, without running them."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    command.make_context(command.name, [*words], parent=context)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Return where a command of ours stands in `infra/`, and its words."""
    for unit in sorted((INFRA / "systemd").glob("*.service")):
        for line in re.findall(r"^ExecStart=\S+/savepoints (.+)$", unit.read_text(), re.MULTILINE):
            yield unit.name, shlex.split(line)
    for name, job in yaml.safe_load((CHART / "values.yaml").read_text())["jobs"].items():
        yield f"values.yaml: {name}", job["arguments"]
    kubeflow, apache = (
        yaml.safe_load((INFRA / "kubernetes" / name).read_text())["spec"]
        for name in ("spark-application.yaml", "spark-application-apache.yaml")
    )
    yield "kubeflow", kubeflow["arguments"]
    yield "apache", apache["driverArgs"]
    compose = yaml.safe_load((INFRA / "compose.yaml").read_text())
    yield "compose.yaml", compose["services"]["metrics"]["command"]


@pytest.mark.parametrize(("where", "words"), list(commands()), ids=lambda one: str(one)[:30])
def test_every_command_in_infra_parses(where: str, words: list[str]) -> None:
    parsed(words)


def test_trap_a_daily_verify_read_the_same_seventh_each_day() -> None:
    """Damage in the other six was never found, though the page promised a week."""
    words = [one for _, one in commands() if one[0] == "verify"]
    dag = (INFRA / "airflow" / "savepoints_care.py").read_text()
    words += [re.findall(r'"([^"]+)"', re.findall(r'command=(\["verify".+?\])', dag)[0])]
    assert len(words) == 3
    paths = {f"files/{number}" for number in range(200)}
    days = [datetime(2026, 12, 28, 3, 17, tzinfo=UTC) + timedelta(days=n) for n in range(7)]
    for one in words:
        parsed([*one])
        share = one[one.index("--read-data") + 1]
        assert set().union(*(ReadSubset.parse(share, now=now).of(paths) for now in days)) == paths


def test_files_that_compose_and_the_image_name_exist() -> None:
    compose = yaml.safe_load((INFRA / "compose.yaml").read_text())
    named = [
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
    ]
    assert [one for one in named if one.startswith(".") and not (INFRA / one).exists()] == []
    copied = re.findall(r"^COPY (.+) \S+$", (INFRA / "docker/Dockerfile").read_text(), re.MULTILINE)
    files = [name for line in copied for name in line.split()]
    assert len(files) > 5
    assert [name for name in files if not (ROOT / name).exists()] == []
    for built in re.findall(r'^"([^"]+)" = "savepoints/', (ROOT / "pyproject.toml").read_text()):
        assert any(built.startswith(name) for name in files)


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """Run helm, building it into the cache unless it is there."""
    program = shutil.which("helm")
    if program is None:
        directory = cache_directory() / "helm"
        program = str(directory / "helm")
        if not Path(program).exists():
            if shutil.which("go") is None:
                pytest.skip("neither helm nor Go is installed")
            subprocess.run(
                ["go", "install", HELM],
                env={**os.environ, "GOBIN": str(directory)}, timeout=840, check=True,
            )  # fmt: skip
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


@pytest.mark.nightly
def test_the_chart_is_linted_and_what_it_makes_fits_kubernetes() -> None:
    linted = helm("lint", "--strict", str(CHART))
    assert linted.returncode == 0, linted.stdout + linted.stderr
    made = helm("template", "night", str(CHART), "--set", "envFrom[0].secretRef.name=kafka")
    assert made.returncode == 0, made.stderr
    documents: list[dict[str, Any]] = [one for one in yaml.safe_load_all(made.stdout) if one]
    assert sorted(one["kind"] for one in documents) == [
        "CronJob", "CronJob", "CronJob", "Deployment", "Service", "ServiceAccount",
    ]  # fmt: skip
    for one in documents:
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "wrong", ["store=lake", "metrics.port=80", "image.tga=1", "jobs.gc.every=1d"]
)
def test_the_chart_refuses_values_that_are_wrong(wrong: str) -> None:
    assert helm("template", "night", str(CHART), "--set", wrong).returncode != 0


@pytest.mark.nightly
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in (INFRA / "systemd").iterdir():
        name = unit.name.replace("@.", "@order_totals.")
        # The program and its user are not on this machine.
        text = unit.read_text().replace("/opt/savepoints/bin/savepoints", "/bin/true")
        (tmp_path / name).write_text(re.sub(r"^User=.*\n", "", text, flags=re.MULTILINE))
    units = sorted(str(one) for one in tmp_path.iterdir())
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    complaints = [line for line in checked.stderr.splitlines() if str(tmp_path) in line]
    assert complaints == []


def airflow_environment() -> Path:
    """Return the environment that has Airflow, made when it is first needed."""
    environment = ROOT / "build" / "airflow"
    if not (environment / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run(
            [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", AIRFLOW],
            check=True,
        )
        (environment / ".installed").touch()
    return environment


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_airflow_runs_the_dag(tmp_path: Path) -> None:
    environment = airflow_environment()
    store = Store.at(str(tmp_path / "store")).make()
    live = unpack("rocksdb", Location.of(str(tmp_path / "live")))
    for batch in (1, 2):
        take(store, live, batch_id=batch)
    variables = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{INFRA / 'airflow'}:{ROOT}",
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__DAGS_FOLDER": str(INFRA / "airflow"),
        "SAVEPOINTS_STORE": str(store.root),
    }

    def airflow(*words: str) -> str:
        done = subprocess.run(
            [str(environment / "bin" / "airflow"), *words],
            env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    airflow("db", "migrate")
    said = airflow("dags", "test", "savepoints_care")
    assert "state=success" in said or "state:success" in said.replace(" ", ""), said
    assert {(one.verb, one.result) for one in store.events.all()} >= {
        ("verify", "done"), ("expire", "done"),
    }  # fmt: skip


EXECUTED = """
import sys
from savepoints_operator import SavepointsOperator
try:
    SavepointsOperator(task_id="one", command=["verify", "--all"]).execute({})
except Exception as error:
    sys.exit(type(error).__name__)
"""


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_trap_airflow_gave_up_when_the_object_store_did_not_answer(tmp_path: Path) -> None:
    """And it tried again after an interrupted operation, for which somebody has to decide."""
    environment = airflow_environment()
    program = tmp_path / "savepoints"
    ended = {}
    for error in (
        UnreachableError("no answer"), LockedError("locked"), QueryRunningError("running"),
        UnfinishedOperationError("interrupted"), UsageError("wrong"), VerificationError("broken"),
    ):  # fmt: skip
        said = json.dumps(error.to_json())
        program.write_text(
            f"#!/bin/sh\necho 'begun' >&2\necho '{said}' >&2\necho '{{}}' >&2\n"
            f"exit {error.exit_code}\n"
        )
        program.chmod(0o755)
        done = subprocess.run(
            [str(environment / "bin" / "python"), "-c", EXECUTED],
            env={
                **os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "PYTHONPATH": str(INFRA / "airflow"), "AIRFLOW_HOME": str(tmp_path / "airflow"),
            },
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        ended[type(error).__name__] = done.stderr.splitlines()[-1]
    again, never = "AirflowException", "AirflowFailException"
    assert ended == {
        "UnreachableError": again, "LockedError": again, "QueryRunningError": again,
        "UnfinishedOperationError": never, "UsageError": never, "VerificationError": never,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "ends", "verdict"),
    [
        (0, 0, "compatible"),
        (3, 0, "needs migration"),
        (16, 16, "incompatible or unknown"),
        (2, 2, "failed"),
    ],
)
def test_the_action_gives_the_verdict_of_the_exit_code(
    tmp_path: Path, code: int, ends: int, verdict: str
) -> None:
    """Only its script: what `upgrade check` itself says has its own tests."""
    program = tmp_path / "savepoints"
    program.write_text(f'#!/bin/sh\necho "$@"\nexit {code}\n')
    program.chmod(0o755)
    files = {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    done = subprocess.run(
        ["bash", str(ROOT / ".github/actions/upgrade-check/check.sh")],
        env={
            **os.environ, **files, "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "APP": "jobs.v2:app", "QUERY": "totals", "FROM": "latest", "ARGUMENTS": "--map a=b",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == ends
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == f"verdict={verdict}\n"
    words = done.stdout.split()
    assert words[2:] == ["--app", "jobs.v2:app", "--from", "latest", "--query", "totals",
                         "--map", "a=b"]  # fmt: skip
    parsed(words)
