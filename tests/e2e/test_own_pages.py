"""docs/your-driver.md and docs/your-app.md: their programs and commands, as a reader types them."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake import DeltaTable

from savepoints.handle import Store
from savepoints.local import LocalWorld
from savepoints.local.jars import resolve_jars
from tests.e2e.marks import NIGHTLY
from tests.e2e.pages import blocks
from tests.e2e.shop import environment

pytestmark = NIGHTLY


def typed(page: str, words: Mapping[str, str] | None = None) -> list[list[str]]:
    """Return the commands of a page without their prompt, with words of the page replaced."""
    lines = [
        line[2:] for block in blocks(page, "console") for line in block.splitlines() if line[2:]
    ]
    for old, new in (words or {}).items():
        lines = [line.replace(old, new) for line in lines]
    return [line.split() for line in lines]


def run(words: list[str], directory: Path, **more: str) -> str:
    """Type a command, which must succeed; returns its output."""
    done = subprocess.run(
        words, cwd=directory, env={**environment(), **more},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def savepoints(words: list[str], directory: Path, **more: str) -> str:
    assert words[0] == "savepoints"
    return run([sys.executable, "-m", *words], directory, **more)


def driver_environment(directory: Path) -> dict[str, str]:
    """Return what a driver of the page needs: jars, a Python for executors, the store."""
    jars = ",".join(str(jar) for jar in resolve_jars().spark)
    return {
        "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "SAVEPOINTS_STORE": str(directory / "savepoints"),
    }


def write_clicks(directory: Path, number: int, who: Iterable[str]) -> None:
    lines = (json.dumps({"user": one, "page": "/"}) + "\n" for one in who)
    (directory / "clicks" / f"{number}.json").write_text("".join(lines))


def test_the_driver_of_the_page_is_rolled_back_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "clicks.py").write_text(blocks("your-driver.md", "python")[0])
    (tmp_path / "clicks").mkdir()
    spark = driver_environment(tmp_path)
    driver = [sys.executable, "clicks.py", str(tmp_path)]
    users: list[str] = []

    def click(number: int, *who: str) -> None:
        users.extend(who)
        write_clicks(tmp_path, number, who)

    def table() -> dict[str, int]:
        rows = DeltaTable(str(tmp_path / "counts")).to_pyarrow_table().to_pylist()
        return {one["user"]: one["count"] for one in rows}

    click(1, "ada", "bob", "ada")
    run(driver, tmp_path, **spark)
    before = Counter(users)
    click(2, "bob", "cy")
    run(driver, tmp_path, **spark)
    assert table() == Counter(users)

    commands = typed("your-driver.md", {"DIRECTORY": str(tmp_path)})
    assert [one[1] for one in commands] == ["list", "show", "verify", "rollback", "rollback"]
    # The sentence below the commands that look: a command's own Spark needs the jars, too.
    diff = [sys.executable, "-m", "savepoints", "diff", "latest~1", "latest", "-o", "json"]
    without = {**environment(), **spark, "PYSPARK_SUBMIT_ARGS": "pyspark-shell"}
    refused = subprocess.run(
        diff, cwd=tmp_path, env=without, capture_output=True, text=True, timeout=400, check=False
    )
    error = json.loads(refused.stderr.splitlines()[-1])
    assert (error["name"], error["jars"]) == ("EnvironmentUnfitError", "Delta")
    assert "SAVEPOINTS_JARS" in error["hint"]
    for words in commands:
        savepoints(words, tmp_path, **spark)

    assert table() == before
    click(3, "dee")
    run(driver, tmp_path, **spark)
    assert table() == Counter(users)

    # The sentence below the commands: an undo leads back to where the rollback found it.
    savepoints(["savepoints", "undo", "clicks", "--yes"], tmp_path, **spark)
    assert (tmp_path / "checkpoints" / "3" / "metadata").is_file(), "beside the others"
    assert table() == before + Counter(["bob", "cy"])


def test_the_merge_of_the_page_is_rolled_back_and_goes_on(tmp_path: Path) -> None:
    """Its bug counts each click of one user twice."""
    program = blocks("your-driver.md", "python")[4]
    buggy = program.replace(
        'clicks.groupBy("user")\n    .count()',
        "clicks.selectExpr(\"explode(array_repeat(user, if(user = 'bob', 2, 1))) as user\")\n"
        '    .groupBy("user")\n    .count()',
    )
    assert buggy != program
    (tmp_path / "totals.py").write_text(program)
    (tmp_path / "buggy.py").write_text(buggy)
    (tmp_path / "clicks").mkdir()
    spark = driver_environment(tmp_path)
    users: list[str] = []

    def click(number: int, *who: str) -> None:
        users.extend(who)
        write_clicks(tmp_path, number, who)

    def table() -> dict[str, int]:
        rows = DeltaTable(str(tmp_path / "totals")).to_pyarrow_table().to_pylist()
        return {one["user"]: one["count"] for one in rows}

    click(1, "ada", "bob", "ada")
    run([sys.executable, "totals.py", str(tmp_path)], tmp_path, **spark)
    before = Counter(users)
    assert table() == before
    click(2, "bob", "cy")
    run([sys.executable, "buggy.py", str(tmp_path)], tmp_path, **spark)
    assert table() == Counter(users) + Counter(["bob"])

    to = str(tmp_path / "checkpoints" / "2")
    back = ["savepoints", "rollback", "latest~1", "--query", "totals", "--to", to, "--yes"]
    savepoints(back, tmp_path, **spark)
    assert table() == before
    run([sys.executable, "totals.py", str(tmp_path)], tmp_path, **spark)
    assert table() == Counter(users)


def test_trap_a_merge_that_delta_skips_leaves_the_state_of_its_batch_unwritten(
    tmp_path: Path,
) -> None:
    """A driver that dies between the two commits runs the batch again, and could not go on."""
    program = blocks("your-driver.md", "python")[4]
    dying = program.replace("    finally:", "        __import__('os')._exit(9)\n    finally:")
    assert dying != program
    (tmp_path / "totals.py").write_text(program)
    (tmp_path / "dying.py").write_text(dying)
    (tmp_path / "clicks").mkdir()
    spark = driver_environment(tmp_path)
    write_clicks(tmp_path, 1, ["ada", "bob"])
    run([sys.executable, "totals.py", str(tmp_path)], tmp_path, **spark)
    write_clicks(tmp_path, 2, ["bob", "cy"])

    with pytest.raises(AssertionError):
        run([sys.executable, "dying.py", str(tmp_path)], tmp_path, **spark)
    query_id = json.loads((tmp_path / "checkpoints" / "1" / "metadata").read_text())["id"]
    totals = DeltaTable(str(tmp_path / "totals"))
    assert totals.transaction_version(query_id) == 1, "Delta has the batch"
    assert not (tmp_path / "checkpoints" / "1" / "commits" / "1").exists(), "Spark does not"
    run([sys.executable, "totals.py", str(tmp_path)], tmp_path, **spark)
    write_clicks(tmp_path, 3, ["bob"])
    run([sys.executable, "totals.py", str(tmp_path)], tmp_path, **spark)

    rows = DeltaTable(str(tmp_path / "totals")).to_pyarrow_table().to_pylist()
    assert {one["user"]: one["count"] for one in rows} == {"ada": 1, "bob": 3, "cy": 1}


def test_the_scheduled_job_of_the_page_saves_what_it_read_and_nothing_twice(
    tmp_path: Path,
) -> None:
    program, _, _, job, *_ = blocks("your-driver.md", "python")
    begin, _, _ = program.partition("query.processAllAvailable()")
    once = begin.replace(
        '.outputMode("complete")', '.outputMode("complete").trigger(availableNow=True)'
    )
    assert once != begin
    (tmp_path / "job.py").write_text(once + job)
    (tmp_path / "clicks").mkdir()
    store = Store.at(str(tmp_path / "savepoints")).make()
    for number, batches in ((1, [0]), (2, [1, 0]), (None, [1, 0])):
        if number:
            write_clicks(tmp_path, number, ("ada", "bob"))
        run([sys.executable, "job.py", str(tmp_path)], tmp_path, **driver_environment(tmp_path))
        assert [one.cut.batch_id for one in store.catalog.all()] == batches


def test_the_second_version_of_the_page_goes_on_beside_the_first(tmp_path: Path) -> None:
    program, _, _, _, _, restoring, comparing = blocks("your-driver.md", "python")
    (tmp_path / "clicks.py").write_text(program)
    known = program[program.index("known =") : program.index("clicks = ")]
    second = program.replace(known, "checkpoint = sys.argv[2]\n")
    second = second.replace('queryName("clicks")', 'queryName("clicks_v2")')
    (tmp_path / "clicks_v2.py").write_text(second.replace("{root}/counts", "{root}/counts_v2"))
    (tmp_path / "restore.py").write_text(restoring)
    (tmp_path / "compare.py").write_text(
        "import sys, savepoints\n"
        'store = savepoints.Store.open(f"{sys.argv[1]}/savepoints")\n'
        f"print({comparing.strip()}.equal)\n"
    )
    (tmp_path / "clicks").mkdir()
    spark = driver_environment(tmp_path)

    def python(name: str, *more: str) -> str:
        return run([sys.executable, name, str(tmp_path), *more], tmp_path, **spark)

    def click(number: int, *who: str) -> None:
        write_clicks(tmp_path, number, who)

    click(1, "ada", "bob", "ada")
    python("clicks.py")
    checkpoint = python("restore.py").split()[-1]
    click(2, "bob", "cy")
    python("clicks_v2.py", checkpoint)
    rows = DeltaTable(str(tmp_path / "counts_v2")).to_pyarrow_table().to_pylist()
    assert {one["user"]: one["count"] for one in rows} == {"ada": 2, "bob": 2, "cy": 1}
    # The first has not read the second file yet.
    assert python("compare.py").split()[-1] == "False"
    python("clicks.py")
    assert python("compare.py").split()[-1] == "True"


def test_the_app_of_the_page_runs_and_is_rolled_back(
    world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    bucket = f"lake-{uuid.uuid4().hex[:8]}"
    world.create_bucket(bucket)
    admin = AdminClient({"bootstrap.servers": world.bootstrap_servers})
    admin.create_topics([NewTopic(bucket, num_partitions=2)])[bucket].result(30)
    (tmp_path / "shop.py").write_text(
        blocks("your-app.md", "python")[0].replace('topic="orders"', f'topic="{bucket}"')
    )
    settings = blocks("your-app.md", "toml")[0].replace("s3://lake", f"s3://{bucket}")
    (tmp_path / "savepoints.toml").write_text(
        settings.replace("broker:9092", world.bootstrap_servers)
    )
    expected: dict[str, tuple[int, int]] = {}
    numbers = iter(range(1000))

    def sell(orders: Iterable[tuple[str, int]]) -> None:
        producer = Producer({"bootstrap.servers": world.bootstrap_servers})
        for customer, cents in orders:
            order: dict[str, Any] = {
                "order_id": str(next(numbers)), "customer": customer, "cents": cents,
                "at": "2026-11-20T10:00:00.000Z",
            }  # fmt: skip
            producer.produce(bucket, json.dumps(order).encode())
            count, total = expected.get(customer, (0, 0))
            expected[customer] = (count + 1, total + cents)
        assert producer.flush(30) == 0

    def table() -> dict[str, tuple[int, int]]:
        uri = f"s3://{bucket}/totals"
        found = DeltaTable(uri, storage_options=world.environment).to_pyarrow_table().to_pylist()
        return {one["customer"]: (one["orders"], one["cents"]) for one in found}

    until_latest, forever, *rest = typed("your-app.md")
    assert forever == ["savepoints", "run", "totals", "--every", "10m"]
    sell([("ada", 100), ("bob", 250), ("ada", 1)])
    savepoints(until_latest, tmp_path)
    assert table() == expected
    before = dict(expected)
    sell([("bob", 7), ("cy", 9)])
    savepoints(until_latest, tmp_path)
    assert table() == expected

    for words in rest:
        savepoints(words, tmp_path)
    savepoints(["savepoints", "rollback", "latest~1", "--yes"], tmp_path)
    assert table() == before
    savepoints(until_latest, tmp_path)
    assert table() == expected
