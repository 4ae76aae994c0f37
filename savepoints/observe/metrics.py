"""Metrics in Prometheus' format, counted from the catalog and the events of a store.

Nothing is counted in memory: whichever process took a savepoint, and whether it still lives, the
figures are those of the store. So a text file for the node exporter and an endpoint say the same.
Only those of `kafka_figures` come from elsewhere.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from savepoints import whole_file
from savepoints.config.secrets import mask
from savepoints.errors import EnvironmentUnfitError, MissingExtraError, SavepointsError
from savepoints.model import Savepoint
from savepoints.observe import kafka_figures
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store
from savepoints.store.tables.events import Event

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client import CollectorRegistry

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Metric:
    """One metric: its name, kind, labels, and what it says."""

    name: str
    kind: Literal["gauge", "counter", "summary"]
    labels: tuple[str, ...]
    help: str


METRICS = (
    Metric(
        "savepoints_last_success_timestamp_seconds", "gauge", ("query",),
        "When the newest complete savepoint was taken, in seconds since 1970. Absent once "
        "the query has ended.",
    ),
    Metric(
        "savepoints_periodic", "gauge", ("query",),
        "1 for a query that is saved periodically: its settings have every, or it has periodic "
        "savepoints. Absent for others, as forks that are run without it, and once the query has "
        "ended.",
    ),
    Metric(
        "savepoints_catalog_size", "gauge", ("query", "state"), "Savepoints in the catalog.",
    ),
    Metric(
        "savepoints_without_rows", "gauge", ("query",),
        "Complete savepoints whose rows could not be written; export adds them.",
    ),
    Metric(
        "savepoints_capture_duration_seconds", "summary", ("query",),
        "Time spent taking savepoints, in seconds.",
    ),
    Metric(
        "savepoints_captured_bytes_total", "counter", ("query",),
        "Bytes copied and written while taking savepoints.",
    ),
    Metric(
        "savepoints_operations_total", "counter", ("query", "verb", "result"),
        "Finished operations by result: done, failed, skipped.",
    ),
    Metric(
        "savepoints_restore_verify_failures_total", "counter", ("query",),
        "Restores, verifications and drills that failed.",
    ),
    Metric(
        "savepoints_recovery_seconds", "gauge", ("query",),
        "Seconds that the latest restore took, on its own, in a rollback or in a drill.",
    ),
    Metric(
        "savepoints_unfinished_operations", "gauge", ("query", "verb"),
        "Operations that are running or were interrupted; see savepoints operations.",
    ),
    Metric(
        "savepoints_last_verify_timestamp_seconds", "gauge", ("query",),
        "When a verification of a savepoint, or of all, last found nothing of the query broken, in "
        "seconds since 1970.",
    ),
    Metric(
        "savepoints_last_drill_timestamp_seconds", "gauge", ("query",),
        "When a drill last succeeded, in seconds since 1970.",
    ),
    Metric(
        "savepoints_late_events", "gauge", ("query",),
        "Events dropped as late, as savepoints late last counted them, minus those merged since.",
    ),
    Metric(
        "savepoints_last_dropped_merge_timestamp_seconds", "gauge", ("query",),
        "When merge --dropped last succeeded, even if there was nothing to merge, in seconds "
        "since 1970.",
    ),
    Metric(
        kafka_figures.LAG, "gauge", ("query", "topic"),
        "Offsets between the newest committed batch and Kafka's end. Only if the settings name a "
        "broker and it answers.",
    ),
    Metric(
        kafka_figures.RESTORABLE_UNTIL, "gauge", ("query",),
        "Time until which Kafka keeps all records after the newest savepoint, in seconds "
        "since 1970; 0 if some are already gone. Absent for topics with no time limit or "
        "with a size limit, and for queries with an archive.",
    ),
)  # fmt: skip
_BY_NAME = {metric.name: metric for metric in METRICS}
# That something has not been done lately says nothing of a query that has ended.
_OF_LIVING = frozenset(
    {
        "savepoints_last_success_timestamp_seconds",
        "savepoints_periodic",
        "savepoints_last_verify_timestamp_seconds",
        "savepoints_last_drill_timestamp_seconds",
        "savepoints_late_events",
        "savepoints_last_dropped_merge_timestamp_seconds",
    }
)

MetricValues = dict[tuple[str, ...], Any]


def of_store(store: Store) -> dict[str, MetricValues]:
    """Count all metrics of a store; see `values`, and `kafka_figures` for those of Kafka.

    Raises:
        StoreNotFoundError: If there is none, which is not the same as one without queries.
    """
    store.require()
    counted = values(store.catalog.all(), store.events.all(), journal.all_unfinished(store.root))
    for name, bound in store.settings.queries.items():
        if bound.every:
            counted["savepoints_periodic"][name,] = 1
    return {**_without_ended(counted, store), **kafka_figures.of_store(store)}


def _without_ended(counted: dict[str, MetricValues], store: Store) -> dict[str, MetricValues]:
    known = store.generations.all()
    ended = {one.query for one in known} - {one.query for one in known if one.status == "current"}
    return {
        name: {labels: value for labels, value in found.items() if labels[0] not in ended}
        if name in _OF_LIVING
        else found
        for name, found in counted.items()
    }


def values(
    savepoints: Sequence[Savepoint], events: Sequence[Event], unfinished: Sequence[Operation] = ()
) -> dict[str, MetricValues]:
    """Count all metrics.

    Returns:
        For each metric but those of Kafka the value by its labels; of the summary, count and sum.
    """
    whole = [one for one in reversed(savepoints) if one.state == "complete"]
    without_rows = Counter(one.query for one in whole if one.rows_missing is not None)
    captures = [one for one in events if one.verb == "create" and one.result == "done"]
    proofs = {"restore", "verify", "drill"}
    restores = [one for one in reversed(events) if (one.verb, one.result) == ("restore", "done")]
    durations: MetricValues = {}
    for one in captures:
        count, seconds = durations.get((one.query or "",), (0, 0.0))
        durations[one.query or "",] = (count + 1, seconds + one.seconds)
    return {
        "savepoints_last_success_timestamp_seconds": {
            (one.query,): one.created_at.timestamp() for one in whole if one.edit is None
        },
        "savepoints_periodic": {(one.query,): 1 for one in savepoints if one.kind == "periodic"},
        "savepoints_catalog_size": dict(Counter((one.query, one.state) for one in savepoints)),
        "savepoints_without_rows": {(one.query,): without_rows[one.query] for one in whole},
        "savepoints_capture_duration_seconds": durations,
        "savepoints_captured_bytes_total": _sums(captures),
        "savepoints_operations_total": dict(
            Counter((one.query or "", one.verb, one.result) for one in events)
        ),
        "savepoints_restore_verify_failures_total": dict(
            Counter(
                (name,)
                for one in events
                if one.verb in proofs and one.result == "failed"
                for name in one.broken or {one.query or ""}
            )
        ),
        "savepoints_recovery_seconds": {(one.query or "",): one.seconds for one in restores},
        "savepoints_unfinished_operations": dict(
            Counter((one.query, one.verb) for one in unfinished)
        ),
        "savepoints_last_verify_timestamp_seconds": _verified(savepoints, events),
        "savepoints_last_drill_timestamp_seconds": _newest(events, "drill"),
        "savepoints_late_events": _late(events),
        "savepoints_last_dropped_merge_timestamp_seconds": _newest(
            [one for one in events if one.merged_dropped], "merge"
        ),
    }


def write(store: Store, path: Path) -> None:
    """Write the metrics of a store as a text file for the node exporter, in one move.

    Raises:
        EnvironmentUnfitError: If it cannot be written there.
    """
    made = text(store)
    try:
        whole_file.write(path, made)
    except OSError as error:
        raise EnvironmentUnfitError(
            f"the metrics cannot be written to {path}: {error.strerror}",
            hint="create its directory, or choose another file with --to or metrics_file",
        ) from None


def text(store: Store) -> str:
    """Return the metrics of a store in the text format."""
    _require()
    from prometheus_client import generate_latest

    return generate_latest(registry(store)).decode()


def serve(store: Store, port: int, address: str = "127.0.0.1") -> tuple[int, Any]:
    """Answer Prometheus on a port, in a thread; each scrape counts anew.

    Returns:
        The port (a free one for 0), and the server, which `shutdown` ends.

    Raises:
        EnvironmentUnfitError: If it cannot listen there.
    """
    _require()
    from prometheus_client import make_wsgi_app, start_http_server

    counting = registry(store)
    try:
        server, _ = start_http_server(port, address, counting)
    except OSError as error:
        raise EnvironmentUnfitError(
            f"savepoints metrics cannot listen on {address}:{port}: {error.strerror}",
            hint="choose another --address, or another port with --serve; 0 is any free one",
        ) from None
    server.set_app(_explaining(make_wsgi_app(counting)))
    return int(server.server_port), server


def _explaining(application: WSGIApplication) -> WSGIApplication:
    """Answer with an error what cannot be counted; Python's server would print a traceback."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            return application(environ, start_response)
        except SavepointsError as error:
            _LOG.error("the metrics could not be counted: %s", error.message)
            start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
            return [mask(f"{error}\n").encode()]

    return answer


def registry(store: Store) -> CollectorRegistry:
    """Return a registry whose one collector reads the store whenever it is asked."""
    from prometheus_client import CollectorRegistry

    made = CollectorRegistry(auto_describe=False)
    made.register(_Collector(store))
    return made


class _Collector:
    """Reads the store at each scrape."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> Iterable[Any]:
        """Describe nothing: the metrics are always the same."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Count and give all metrics."""
        from prometheus_client import core

        found = of_store(self._store)
        for name, metric in _BY_NAME.items():
            family = {
                "gauge": core.GaugeMetricFamily,
                "counter": core.CounterMetricFamily,
                "summary": core.SummaryMetricFamily,
            }[metric.kind](name, metric.help, labels=metric.labels)
            for labels, value in sorted(found.get(name, {}).items()):
                if metric.kind == "summary":
                    family.add_metric(labels, count_value=value[0], sum_value=value[1])
                else:
                    family.add_metric(labels, value)
            yield family


def _newest(events: Sequence[Event], verb: str) -> MetricValues:
    """Return when a verb was last done, by query."""
    return {
        (one.query or "",): one.at.timestamp()
        for one in reversed(events)
        if (one.verb, one.result) == (verb, "done")
    }


def _verified(savepoints: Sequence[Savepoint], events: Sequence[Event]) -> MetricValues:
    """Return when each query was last verified: `verify --all` is of no query, and of each.

    What it found broken of one does not make the others unverified.
    """
    known: dict[str, datetime] = {}
    for saved in savepoints:
        known[saved.query] = min(saved.created_at, known.get(saved.query, saved.created_at))
    for one in events:  # Its first savepoint may have expired.
        if one.query in known:
            known[one.query] = min(one.at, known[one.query])
    found: MetricValues = {}
    for done in reversed(events):
        if done.verb != "verify" or (done.result != "done" and not done.broken):
            continue
        then = {query for query, since in known.items() if since <= done.at}
        names = (then if done.query is None else {done.query}) - done.broken
        found |= {(name,): done.at.timestamp() for name in names}
    return found


def _late(events: Sequence[Event]) -> MetricValues:
    """Return how many dropped events are known and not merged, by query."""
    found: MetricValues = {}
    for one in reversed(events):
        if one.result != "done":
            continue
        key = (one.query or "",)
        if one.verb == "late":
            found[key] = int(one.parameters["events"])
        elif key in found and one.merged_dropped:
            found[key] = max(0, found[key] - int(one.parameters["rows"]))
    return found


def _sums(events: Iterable[Event]) -> MetricValues:
    sums: MetricValues = {}
    for one in events:
        key = (one.query or "",)
        sums[key] = sums.get(key, 0) + (one.bytes or 0)
    return sums


def _require() -> None:
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "metrics need prometheus-client, which is not installed",
            hint="pip install 'savepoints[metrics]'",
        ) from None
