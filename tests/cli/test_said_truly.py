"""What commands say where they used to say nothing, or something that was not so."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from savepoints.errors import UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.runtime import app as apps
from savepoints.runtime import runner
from savepoints.runtime.failure import cause, error_of
from tests.cli.conftest import Call
from tests.samples import take, unpack


def test_trap_locate_prints_nothing_where_no_output_is_known(
    call: Call, on_local: Location, local_store: Store
) -> None:
    take(local_store, unpack("rocksdb", on_local / "checkpoint"))

    called = call("locate", "totals", "--store", str(local_store.root))

    assert called.code == 10
    assert "the output tables of totals are unknown" in called.err
    assert "attach(…, outputs=" in called.err


def test_trap_locate_prints_a_path_that_only_a_shell_and_we_understand(
    call: Call, on_local: Location, local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(local_store, unpack("rocksdb", on_local / "checkpoint"))
    monkeypatch.setenv("HOME", str(on_local))
    tables = {"home": "~/a table/", "there": "tables/b", "lake": "s3a://lake/c"}
    settings = "\n".join(f'{name} = "{uri}"' for name, uri in tables.items())
    bound = '[queries.totals]\napp = "a:b"\ncheckpoints = "c"\n[queries.totals.outputs]\n'
    Path("savepoints.toml").write_text(bound + settings)

    found = call("locate", "totals", "--store", str(local_store.root), "-o", "json").document

    assert found["located"]["outputs"] == {
        "home": f"{on_local}/a table",
        "there": f"{Path.cwd()}/tables/b",
        "lake": "s3a://lake/c",
    }


def test_trap_the_next_step_is_a_run_of_what_has_no_application(
    call: Call, on_local: Location, local_store: Store
) -> None:
    first = take(local_store, unpack("rocksdb", on_local / "checkpoint"), batch_id=1)
    to = str(on_local / "fixed")
    options = ("--to", to, "--outputs", "none", "--yes", "--store", str(local_store.root))

    called = call("rollback", first.id, *options)

    assert called.code == 0
    assert f"start your own driver for totals with the checkpointLocation {to}" in " ".join(
        called.out.split()
    )
    assert "savepoints run" not in called.out


def test_trap_rows_that_nobody_counted_are_called_none(
    call: Call, on_local: Location, local_store: Store
) -> None:
    take(local_store, unpack("rocksdb", on_local / "checkpoint"))

    called = call("verify", "latest", "--checksums", "--store", str(local_store.root))

    assert called.code == 0
    assert "rows not counted" in called.out
    assert "0 rows" not in called.out


def test_trap_an_application_that_ends_the_program_ends_the_command_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quits.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match="quits:app cannot be imported: SystemExit: 0"):
        apps.load("quits:app")


def test_trap_what_another_settings_file_lacks_is_blamed_on_the_usual_one(
    call: Call, local_store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f'store = "{local_store.root}"\n')

    called = call("run", "orders", "--config", str(file))

    assert called.code == 2
    assert f"to {file}" in called.err
    assert "savepoints.toml" not in called.err


def test_a_group_chooses_lines_of_a_file(call: Call, local_store: Store) -> None:
    called = call("reset", "q", "--to-earliest", "--group", "g", "--store", str(local_store.root))

    assert called.code == 2
    assert "--group applies only to --from-file" in called.err


def test_trap_the_hint_of_an_executors_error_is_shown_as_the_cause() -> None:
    """An error of this package has its hint in its text, below the message."""
    error = UsageError("the function returned 2 rows instead of 1", hint="correct it: in the App")
    text = f"""org.apache.spark.SparkException: Job aborted
Traceback (most recent call last):
  File "worker.py", line 3, in main
savepoints.errors.UsageError: {error}
"""

    assert cause(text) == "savepoints.errors.UsageError: the function returned 2 rows instead of 1"


def test_trap_the_last_line_of_sparks_explanation_is_shown_as_the_cause() -> None:
    text = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: org.apache.spark.sql.execution.streaming.state.StateStoreValueSchemaNotCompatible: \
[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match existing state \
value schema.
Existing value_schema=StructType() and new value_schema=StructType().
If you want to force running the query without schema validation, please set the conf to false.
However, please note that running the query with incompatible schema could cause non-deterministic \
behavior. SQLSTATE: XXKST
"""

    assert "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema" in cause(text)


def test_trap_state_that_is_gone_was_to_be_run_again_or_rolled_back() -> None:
    """Spark cannot tell whether it was deleted, or never there: what a person knows decides."""
    text = """[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query \
with stateful operators because the state directory is empty or missing. SQLSTATE: 42K03"""

    error = error_of(text, "totals", "jobs:app", Location.of("s3://bucket/ck"))

    assert "savepoints run totals --recover" in error.hint
    assert "savepoints upgrade check --app jobs:app --from latest --query totals" in error.hint


def test_trap_what_was_suppressed_is_shown_as_the_cause() -> None:
    """As Spark's RocksDB says it when the disk is full and its files cannot be closed either."""
    text = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
\tSuppressed: java.io.IOException: could not close
\t\tat org.apache.hadoop.fs.Closer.close(Closer.java:1)
\tCaused by: java.lang.IllegalStateException: closed twice
\t\tat org.apache.hadoop.fs.Closer.close(Closer.java:2)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\tSuppressed: java.io.IOException: could not flush
\t\tat java.base/java.io.FilterOutputStream.close(FilterOutputStream.java:1)
"""

    assert cause(text) == "Caused by: java.io.IOException: No space left on device"


def test_trap_the_end_of_a_run_is_logged_as_a_failure_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """py4j logs what Python raises in a callback, on its way into the JVM."""
    log = logging.getLogger("py4j.clientserver")
    for error in (runner._Drained(), ValueError("a real one")):
        try:
            raise error
        except (runner._Drained, ValueError):
            log.exception("There was an exception while executing the Python Proxy")

    assert [str(one.exc_info[1]) for one in caplog.records if one.exc_info] == ["a real one"]
