"""The three policies of the Terraform module, on an S3 server that enforces them (moto's IAM).

That server evaluates actions and resources, and no conditions: listings are allowed in whole
buckets here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import boto3
import hcl2
import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import s3
from savepoints.local.service import Service
from tests.conftest import use_s3
from tests.faults.test_rollback_killed import write_output
from tests.samples import query_id, take, unpack

pytestmark = pytest.mark.nightly

MODULE = Path(__file__).parents[3] / "infra" / "terraform"
STORE, LAKE = "acme-savepoints", "acme-lake"
PLACES = {
    "bucket": STORE,
    "prefix": "savepoints",
    "read": [f"arn:aws:s3:::{LAKE}/checkpoints/*", f"arn:aws:s3:::{LAKE}/tables/*"],
    "buckets": [f"arn:aws:s3:::{LAKE}"],
    "list_within": ["checkpoints*", "tables*"],
}
ROLES = ("reader", "taker", "operator")
TABLE = f"s3://{LAKE}/tables/totals"
CHECKPOINTS = f"s3://{LAKE}/checkpoints"


def policy(role: str) -> str:
    """Return a policy as Terraform's `templatefile` renders it."""
    text = (MODULE / "policies" / f"{role}.json.tftpl").read_text()
    text = re.sub(r"\$\{jsonencode\((\w+)\)\}", lambda found: json.dumps(PLACES[found[1]]), text)
    return re.sub(r"\$\{(\w+)\}", lambda found: str(PLACES[found[1]]), text)


@dataclass(frozen=True)
class Lake:
    """A store and a query, and who may do what with them.

    Attributes:
        endpoint: Of the server.
        keys: Of a user of each role.
    """

    endpoint: str
    keys: dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake with a query that has two savepoints; from then on the policies are enforced."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("INITIAL_NO_AUTH_ACTION_COUNT", "1000000")
        service = Service("s3", s3.prepare_s3, tmp_path_factory.mktemp("s3"), detach=False)
        try:
            service.wait_ready()
            use_s3(service.endpoint, patched)
            for bucket in (STORE, LAKE):
                s3.create_bucket(service.endpoint, bucket)
            _fill()
            keys = {role: _user(service.endpoint, role) for role in ROLES}
            _enforce(service.endpoint)
            yield Lake(service.endpoint, keys)
        finally:
            service.stop()


def _fill() -> None:
    store = Store.at(f"s3://{STORE}/savepoints").make()
    live = unpack("rocksdb", Location.of(f"{CHECKPOINTS}/1"))
    write_output(TABLE, query_id("rocksdb"))
    for batch, tag in ((1, "first"), (2, "second")):
        take(store, live, batch_id=batch, query="totals", outputs={"totals": TABLE}, tags=(tag,))


def _user(endpoint: str, role: str) -> tuple[str, str]:
    client: Any = boto3.client("iam", endpoint_url=endpoint, region_name=s3.REGION)
    client.create_user(UserName=role)
    client.put_user_policy(UserName=role, PolicyName=role, PolicyDocument=_for_moto(role))
    key = client.create_access_key(UserName=role)["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


def _for_moto(role: str) -> str:
    """Return a policy with what moto asks for when several objects are deleted in one request.

    AWS asks for `s3:DeleteObject` of each object, moto for the same of the bucket.
    """
    document = json.loads(policy(role))
    for statement in list(document["Statement"]):
        if "s3:DeleteObject" in statement["Action"]:
            named = statement["Resource"]
            objects = [named] if isinstance(named, str) else named
            buckets = sorted({one.partition("/")[0] for one in objects})
            bulk = {"Effect": "Allow", "Action": "s3:DeleteObject*", "Resource": buckets}
            document["Statement"].append(bulk)
    return json.dumps(document)


def _enforce(endpoint: str) -> None:
    address = endpoint.removeprefix("http://")
    connection = HTTPConnection(address, timeout=10)
    # The number of requests that are still not checked; a form would not be read.
    connection.request("POST", "/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"})
    answered = connection.getresponse()
    assert answered.status == HTTPStatus.OK, answered.read()
    connection.close()


Calls = Callable[..., tuple[int, str]]


@pytest.fixture
def of(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Call a command with the keys of a role; returns its exit code and what it wrote."""
    use_s3(lake.endpoint, monkeypatch)

    def called(role: str, *words: str) -> tuple[int, str]:
        identity, secret = lake.keys[role]
        keys = {"AWS_ACCESS_KEY_ID": identity, "AWS_SECRET_ACCESS_KEY": secret}
        done = subprocess.run(
            [sys.executable, "-m", "savepoints", *words, "--store", f"s3://{STORE}/savepoints"],
            cwd=tmp_path, env={**os.environ, **keys},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return called


LOOK: tuple[tuple[str, ...], ...] = (
    ("list",),
    ("show", "first"),
    ("lineage",),
    ("events",),
    ("operations", "list"),
    ("metrics",),
)
CREATE = ("create", "--checkpoint", f"{CHECKPOINTS}/1", "--name", "totals", "--format", "native")
ROLLBACK = ("rollback", "first", "--query", "totals", "--to", f"{CHECKPOINTS}/2", "--yes")


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_look(role: str, of: Calls) -> None:
    for words in LOOK:
        code, said = of(role, *words)
        assert code == 0, f"{words}: {said}"


def test_a_reader_changes_nothing(of: Calls) -> None:
    for words in (CREATE, ("tag", "first", "readers"), ("gc", "--yes", "--grace", "0s")):
        code, said = of("reader", *words)
        assert code != 0, f"{words}: {said}"


def test_a_taker_takes_and_cares_for_savepoints_and_rolls_nothing_back(
    of: Calls,
) -> None:
    for words in (
        CREATE,
        ("verify", "--all"),
        ("tag", "first", "mine", "--yes"),
        ("topology", "--checkpoint", f"{CHECKPOINTS}/1"),
        ("expire", "--keep-last", "5", "--yes"),
    ):
        code, said = of("taker", *words)
        assert code == 0, f"{words}: {said}"
    code, said = of("taker", *ROLLBACK)
    assert code != 0, said


def test_an_operator_rolls_back_and_undoes(of: Calls) -> None:
    # What the taker began and could not finish is finished first.
    of("operator", "undo", "totals", "--yes")
    code, said = of("operator", *ROLLBACK)
    assert code == 0, said
    code, said = of("operator", "undo", "totals", "--to", f"{CHECKPOINTS}/3", "--yes")
    assert code == 0, said


@pytest.mark.parametrize("role", ROLES)
def test_a_policy_names_no_more_than_the_places(role: str) -> None:
    document = json.loads(policy(role))
    for statement in document["Statement"]:
        assert statement["Effect"] == "Allow"
        for action in (
            [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        ):
            assert re.fullmatch(r"s3:\w+", action)
        named = statement["Resource"]
        for resource in [named] if isinstance(named, str) else named:
            assert resource.startswith(("arn:aws:s3:::acme-savepoints", "arn:aws:s3:::acme-lake"))


def test_the_module_parses_and_uses_what_it_declares() -> None:
    parsed = {one.name: hcl2.loads(one.read_text()) for one in sorted(MODULE.glob("*.tf"))}
    declared = {name for part in parsed["variables.tf"]["variable"] for name in part}
    text = "".join(one.read_text() for one in MODULE.glob("*.tf"))
    assert {one.strip('"') for one in declared} == set(re.findall(r"var\.(\w+)", text))
    used = {
        name
        for role in ROLES
        for name in re.findall(
            r"\$\{(?:jsonencode\()?(\w+)", (MODULE / "policies" / f"{role}.json.tftpl").read_text()
        )
    }
    assert (
        used == set(PLACES) == set(re.findall(r"^    (\w+) +=", text, re.MULTILINE)) & set(PLACES)
    )
