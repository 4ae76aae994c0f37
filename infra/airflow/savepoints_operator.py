"""An Airflow operator for the command `savepoints`; copy it beside your DAGs.

The command runs on the worker, with the environment of the worker and `store` as its store. Its
JSON document is the task's XCom.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk import BaseOperator

# What Airflow should make of an exit code: see docs/reference/exit-codes.md.
DIFFERENCES = 3


class SavepointsOperator(BaseOperator):
    """Run a command of `savepoints` and return its JSON document.

    Attributes:
        command: The words after `savepoints`, such as `["verify", "--all"]`.
        store: Root of the store; by default what the worker's settings say.
        skip_on_differences: Whether exit code 3 (partly done, or a comparison found differences)
            skips what comes next; otherwise it fails.
    """

    template_fields: Sequence[str] = ("command", "store")

    def __init__(
        self,
        *,
        command: Sequence[str],
        store: str | None = None,
        skip_on_differences: bool = False,
        **kwargs: Any,  # noqa: ANN401 - the base says
    ) -> None:
        """Take the command; everything else goes to the base."""
        super().__init__(**kwargs)
        self.command = list(command)
        self.store = store
        self.skip_on_differences = skip_on_differences

    def execute(self, context: Any) -> Any:  # noqa: ANN401 - the base says
        """Run the command.

        Raises:
            AirflowSkipException: On differences, if they are to skip.
            AirflowException: If another attempt may succeed, because somebody else works on the
                query or the object store does not answer, so that Airflow tries again.
            AirflowFailException: On every other error, which another attempt would only repeat.
        """
        words = ["savepoints", *self.command, "-o", "json"]
        environment = dict(os.environ)
        if self.store:
            environment["SAVEPOINTS_STORE"] = self.store
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        for line in done.stderr.splitlines():
            self.log.info(line)
        if done.returncode == 0:
            return json.loads(done.stdout)
        said = f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}"
        if done.returncode == DIFFERENCES and self.skip_on_differences:
            raise AirflowSkipException(said)
        if _may_pass(done.stderr):
            raise AirflowException(said)
        raise AirflowFailException(said)


def _may_pass(stderr: str) -> bool:
    """Return True if the error says so itself; a log may stand around its line."""
    for line in reversed(stderr.splitlines()):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and "retryable" in said:
            return bool(said["retryable"])
    return False
