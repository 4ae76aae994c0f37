"""What `flink` writes for Flink and reads from it; the answers are those of Flink 2.3.0."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import flink, flink_cluster, flink_query, flink_rest
from benchmarks.flink_query import Seen
from benchmarks.flink_rest import Rest
from benchmarks.result import Sample
from savepoints.local.service import free_ports

# Of a job that was just restored; left out is what nobody reads here.
JOB = """
{"jid": "f2eef3a3c4845eecb916bdf95f2339f3", "state": "RUNNING", "vertices": [
  {"id": "bc764cd8ddf7a0cff126f51c16239658", "name": "Source: orders[6]", "parallelism": 2,
   "status": "RUNNING", "tasks": {"SCHEDULED": 0, "DEPLOYING": 0, "FAILED": 0, "RUNNING": 2,
    "INITIALIZING": 0}, "metrics": {"read-records": 1, "read-records-complete": true,
    "write-records": 1, "write-records-complete": true}},
  {"id": "20ba6b65f97481d5570070de90e4e791",
   "name": "GroupAggregate[8] -> Calc[9] -> Sink: marked[10]", "parallelism": 2,
   "status": "RUNNING", "tasks": {"SCHEDULED": 0, "DEPLOYING": 0, "FAILED": 0, "RUNNING": 2,
    "INITIALIZING": 0}, "metrics": {"read-records": 7, "read-records-complete": true,
    "write-records": 0, "write-records-complete": true}}]}
"""
TIMES = """
[{"id": "bc764cd8ddf7a0cff126f51c16239658", "name": "Source: orders[6]", "now": 1795559630101,
  "subtasks": [
   {"subtask": 0, "endpoint": "localhost:37799", "duration": 3323, "timestamps":
    {"SCHEDULED": 1795559626778, "DEPLOYING": 1795559627066, "FAILED": 0, "FINISHED": 0,
     "RUNNING": 1795559627296, "INITIALIZING": 1795559627265}},
   {"subtask": 1, "endpoint": "localhost:37799", "duration": 3323, "timestamps":
    {"SCHEDULED": 1795559626778, "DEPLOYING": 1795559627066, "FAILED": 0, "FINISHED": 0,
     "RUNNING": 1795559627309, "INITIALIZING": 1795559627177}}]},
 {"id": "20ba6b65f97481d5570070de90e4e791", "now": 1795559630117, "subtasks": [
   {"subtask": 0, "endpoint": "localhost:37799", "duration": 3339, "timestamps":
    {"SCHEDULED": 1795559626778, "DEPLOYING": 1795559627066, "FAILED": 0, "FINISHED": 0,
     "RUNNING": 1795559627925, "INITIALIZING": 1795559627179}},
   {"subtask": 1, "endpoint": "localhost:37799", "duration": 3339, "timestamps":
    {"SCHEDULED": 1795559626778, "DEPLOYING": 1795559627066, "FAILED": 0, "FINISHED": 0,
     "RUNNING": 1795559627920, "INITIALIZING": 1795559627263}}]}]
"""
IN_PROGRESS = '{"status": {"id": "IN_PROGRESS"}, "operation": null}'
COMPLETED = """
{"status": {"id": "COMPLETED"}, "operation":
 {"location": "file:/tmp/x/savepoint-285fba-fdded071e350"}}
"""
FAILED = """
{"status": {"id": "COMPLETED"}, "operation": {"failure-cause":
 {"class": "java.util.concurrent.CompletionException",
  "stack-trace": "org.apache.flink.runtime.checkpoint.CheckpointException: IO-problem detected."}}}
"""
EXCEPTIONS = r"""
{"exceptionHistory": {"entries": [{"exceptionName": "org.apache.flink.runtime.JobException",
 "stacktrace": "org.apache.flink.runtime.JobException: Recovery is suppressed\n\tat a.B(B.java:2)\nCaused by: java.lang.RuntimeException: Fail to deserialize at field: amount.\n\tat c.D(D.java:3)\n\t... 9 more\n"}],
 "truncated": false}}
"""  # noqa: E501


def test_a_savepoint_has_a_location_once_it_is_complete() -> None:
    found = [flink_rest.location(json.loads(one)) for one in (IN_PROGRESS, COMPLETED)]

    assert found == [None, "file:/tmp/x/savepoint-285fba-fdded071e350"]


def test_a_failed_savepoint_says_why() -> None:
    with pytest.raises(RuntimeError, match="IO-problem detected"):
        flink_rest.location(json.loads(FAILED))


def test_a_failed_job_says_why_without_its_stack() -> None:
    assert flink_rest.causes(json.loads(EXCEPTIONS)) == [
        "org.apache.flink.runtime.JobException: Recovery is suppressed",
        "java.lang.RuntimeException: Fail to deserialize at field: amount.",
    ]
    assert flink_rest.causes({"exceptionHistory": {"entries": [], "truncated": False}}) == []


def test_records_are_those_of_the_last_operator() -> None:
    assert flink_rest.records_read(json.loads(JOB)) == 7


@pytest.mark.parametrize("operator", [0, 1])
def test_a_job_runs_when_all_tasks_of_all_operators_do(operator: int) -> None:
    job: dict[str, Any] = json.loads(JOB)
    assert flink_rest.is_running(job)

    job["vertices"][operator]["tasks"] |= {"RUNNING": 1, "INITIALIZING": 1}

    assert not flink_rest.is_running(job)


def test_a_restore_lasts_from_the_first_task_to_the_last() -> None:
    # 1795559627.177 of the second task to 1795559627.925 of the third.
    assert flink_rest.initializing_seconds(json.loads(TIMES)) == pytest.approx(0.748)


def test_a_cluster_that_does_not_listen_yet_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="refused"):
        Rest(free_ports(1)[0]).slots()


def test_rows_are_read_from_what_the_sink_printed() -> None:
    printed = (
        "2026-11-24 22:22:52,346 WARN  PluginConfig The directory [plugins] does not exist.\n"
        "marked:1> +U[0000000000000000, 2, 1000000, 1000000]\n"
        "marked:1> -U[0000000000000000, 2, 1000000, 1000000]\n"
        "marked:1> +U[0000000000000000, 3, 2000005, 1000005]\n"
        "marked> +I[9E3779B97F4A7C15, 1, 7, 7]\n"
        "marked:2> +U[0000000000000000, 4, 30"  # a line that is not written to its end yet
    )

    assert flink_query.seen(printed) == [
        Seen("0000000000000000", 2, 1_000_000, 1_000_000),
        Seen("0000000000000000", 3, 2_000_005, 1_000_005),
        Seen("9E3779B97F4A7C15", 1, 7, 7),
    ]


def test_the_query_reads_the_directory_and_goes_on_looking(tmp_path: Path) -> None:
    source, sink, job = flink_query.statements(tmp_path / "it's")

    assert f"'path' = 'file://{tmp_path}/it%27s'" in source
    assert "'source.monitor-interval' = '50 ms'" in source
    assert "'connector' = 'print'" in sink
    assert job.startswith("INSERT INTO marked SELECT")


def test_a_cluster_writes_below_its_directory_and_listens_on_this_machine_only(
    tmp_path: Path,
) -> None:
    flink_cluster.write(flink_cluster.configuration(tmp_path, 8081, 6123), tmp_path / "conf")

    lines = (tmp_path / "conf" / "config.yaml").read_text().splitlines()
    options: Mapping[str, Any] = {
        name: json.loads(value) for name, value in (line.split(": ", 1) for line in lines)
    }
    assert options["rest.port"] == 8081
    assert options["jobmanager.rpc.port"] == 6123
    assert options["state.backend.type"] == "rocksdb"
    assert options["taskmanager.numberOfTaskSlots"] == options["parallelism.default"] == 2
    places = [value for value in options.values() if "/" in str(value)]
    assert len(places) == 2
    assert all(re.fullmatch(rf"(file://)?{re.escape(str(tmp_path))}/\w+", one) for one in places)
    hosts = [value for name, value in options.items() if re.search(r"host$|address$", name)]
    assert len(hosts) == 6
    assert set(hosts) == {"127.0.0.1"}


def test_a_task_manager_may_use_as_much_as_sparks_driver(tmp_path: Path) -> None:
    options = flink_cluster.configuration(tmp_path, 8081, 6123)

    sizes = [
        int(str(options[f"taskmanager.memory.{part}"]).removesuffix("m"))
        for part in (
            "task.heap.size",
            "framework.heap.size",
            "framework.off-heap.size",
            "network.max",
            "managed.size",
        )
    ]

    assert sum(sizes) == 4 * 1024


def test_each_ratio_is_flinks_cost_divided_by_ours() -> None:
    ours, peer = [Sample(2.0, 100, 1)], [Sample(5.0, 250, 1)]
    rows = ("create {}", "restore {}", "restore {}, first record")
    samples = {
        f"{side}: {row.format(form)}": found
        for side, found in (("ours", ours), ("Flink", peer))
        for row in rows
        for form in ("canonical", "native")
    }
    samples["ours: create native"] = [Sample(10.0, 1000, 1)]
    samples["ours: create native, the next"] = [Sample(1.0, 10, 1)]

    assert flink._ratios(samples) == {
        "create-canonical": 2.5,
        "create-native": 0.5,
        "create-native-next": 5.0,
        "restore-canonical": 2.5,
        "restore-native": 2.5,
        "first-record-canonical": 2.5,
        "first-record-native": 2.5,
        "bytes-canonical": 2.5,
        "bytes-native": 0.25,
    }
