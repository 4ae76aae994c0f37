"""OpenLineage: each verb as a run, sent to wherever OpenLineage's own settings say.

Active when the extra `openlineage` is installed and `OPENLINEAGE_URL` or another
of its variables is set (https://openlineage.io/docs/client/python). A run has the name
`<query>.<verb>`; taking a savepoint reads the checkpoint and Kafka's topics and pins versions of
Delta tables, which are its outputs with a `DatasetVersion` facet.
"""

from __future__ import annotations

import os
import uuid
from datetime import timedelta
from typing import Any

from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.model import Savepoint
from savepoints.moments import rfc3339
from savepoints.store.tables.events import Event
from savepoints.uri import Uri

NAMESPACE = "savepoints"
_PRODUCER = "urn:savepoints"


def is_configured() -> bool:
    """Return True if OpenLineage is configured to send events somewhere."""
    disabled = os.environ.get("OPENLINEAGE_DISABLED", "").lower() == "true"
    return not disabled and any(
        name.startswith("OPENLINEAGE_") and name != "OPENLINEAGE_DISABLED" for name in os.environ
    )


def emit(event: Event, savepoint: Savepoint | None) -> None:
    """Send a verb that ended as a START and a COMPLETE or FAIL event.

    Raises:
        ImportError: If the extra is not installed.
    """
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.generated.error_message_run import ErrorMessageRunFacet

    failed = event.result == "failed"
    facets: Any = {"errorMessage": ErrorMessageRunFacet(event.message, "python")} if failed else {}
    run = Run(str(uuid.uuid4()), facets)
    job = Job(NAMESPACE, f"{event.query or 'store'}.{event.verb}")
    inputs, outputs = _datasets(savepoint)
    client = OpenLineageClient()
    for state, moment in (
        (RunState.START, event.at - timedelta(seconds=event.seconds)),
        (RunState.FAIL if failed else RunState.COMPLETE, event.at),
    ):
        client.emit(
            RunEvent(
                eventType=state, eventTime=rfc3339(moment), run=run, job=job,
                producer=_PRODUCER, inputs=inputs, outputs=outputs,
            )
        )  # fmt: skip
    client.close()


def _datasets(savepoint: Savepoint | None) -> tuple[list[Any], list[Any]]:
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet

    if savepoint is None:
        return [], []
    topics = {
        topic for position in savepoint.cut.offsets for topic in kafka_offsets(position) or {}
    }
    tables = []
    for one in savepoint.outputs:
        uri = Uri.parse(one.uri)
        namespace = "file" if uri.scheme == "file" else f"{uri.scheme}://{uri.bucket}"
        version: Any = {"version": DatasetVersionDatasetFacet(str(one.version))}
        tables.append(OutputDataset(namespace, uri.path, facets=version))
    return [InputDataset("kafka", topic) for topic in sorted(topics)], tables
