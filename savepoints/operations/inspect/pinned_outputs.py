"""Can the versions of the outputs that a savepoint pinned still be read, and for how long?"""

from __future__ import annotations

from savepoints.errors import SavepointsError
from savepoints.io import in_parallel
from savepoints.model import OutputVersion, Savepoint, utc_now
from savepoints.operations.inspect.findings import Finding
from savepoints.outputs.delta import retention
from savepoints.outputs.delta.missing_files import unreadable_files
from savepoints.outputs.delta.retention import Lifetime
from savepoints.texts import count_text


def check_outputs(savepoint: Savepoint) -> tuple[list[Finding], tuple[Lifetime, ...]]:
    """Look at every output; one that is gone spoils a rollback, not the savepoint itself."""
    looked = in_parallel(_look_at, savepoint.outputs)
    findings = [one for found, _ in looked for one in found]
    return findings, tuple(one for _, one in looked if one is not None)


def _look_at(output: OutputVersion) -> tuple[list[Finding], Lifetime | None]:
    what = f"output {output.name}"
    try:
        gone = unreadable_files(output)
        if gone:
            problem = f"version {output.version} of {output.uri} is missing "
            problem += f"{count_text(len(gone), 'file')}, for example {gone[0]}"
            return [Finding("warning", what, problem)], None
        known = retention.of_output(output)
    except SavepointsError as error:
        return [Finding("warning", what, error.message)], None
    problem = known.problem(utc_now()) or ""
    return ([Finding("warning", what, problem)] if problem else []), known
