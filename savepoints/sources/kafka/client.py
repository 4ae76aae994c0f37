"""Open Kafka clients, mostly for metadata and never as part of a consumer group.

Whatever asks Kafka raises EnvironmentUnfitError if no broker is configured or reachable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from savepoints.config.settings import KafkaSettings
from savepoints.errors import EnvironmentUnfitError, MissingExtraError
from savepoints.sources.kafka import security

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

_LOG = logging.getLogger(__name__)

# How long a broker may take to answer before the check gives up.
TIMEOUT_SECONDS = 15.0
# Pause before asking again about what has no leader or coordinator.
_PAUSE_SECONDS = 0.1

_OR = ", or pass --no-source-check if the command has it"

KeyT = TypeVar("KeyT")
T = TypeVar("T")
KafkaOptions: TypeAlias = dict[str, str | float | bool]


def admin(settings: KafkaSettings) -> AdminClient:
    """Return a client that asks about topics."""
    opened: AdminClient = _opened(settings, lambda kafka: kafka.admin.AdminClient, {})
    return opened


@contextmanager
def consumer(settings: KafkaSettings, **options: str | float | bool) -> Iterator[Consumer]:
    """Open a consumer that commits nothing and, like Spark's, sees uncommitted records.

    Args:
        options: More client options, with `_` for `.`; those in the settings win.
    """
    looking: KafkaOptions = {
        "group.id": "savepoints-offset-check",
        "enable.auto.commit": False,
        "isolation.level": "read_uncommitted",
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    opened: Consumer = _opened(settings, lambda kafka: kafka.Consumer, looking)
    try:
        yield opened
    finally:
        opened.close()


def producer(settings: KafkaSettings) -> Producer:
    """Return a producer that sends each record once, to the partition that Java's would choose."""
    once: KafkaOptions = {"enable.idempotence": True, "partitioner": "murmur2_random"}
    opened: Producer = _opened(settings, lambda kafka: kafka.Producer, once)
    return opened


def answers(
    futures: Mapping[KeyT, Future[T]],
    settings: KafkaSettings,
    missing: frozenset[int] = frozenset(),
) -> dict[KeyT, T]:
    """Wait for an admin client's answers; what is not there, by these error codes, is left out."""
    from confluent_kafka import KafkaException

    found: dict[KeyT, T] = {}
    for key, future in futures.items():
        try:
            found[key] = future.result()
        except KafkaException as error:
            if error.args[0].code() not in missing:
                raise silent(settings, error) from None
    return found


def settled_answers(
    ask: Callable[[], Mapping[KeyT, Future[T]]],
    settings: KafkaSettings,
    seconds: float,
    moving: frozenset[int],
    missing: frozenset[int] = frozenset(),
) -> dict[KeyT, T]:
    """Wait for answers, and ask again while whoever is to answer is being elected.

    Args:
        moving: Error codes that say so.
        missing: Error codes of what is not there, and is left out.
    """
    deadline = time.monotonic() + seconds
    while True:
        futures = ask()
        if not _error_codes(futures.values()) & moving or time.monotonic() >= deadline:
            return answers(futures, settings, missing)
        time.sleep(_PAUSE_SECONDS)


def _error_codes(futures: Iterable[Future[T]]) -> set[int]:
    from confluent_kafka import KafkaException

    errors = [one.exception() for one in futures]
    return {one.args[0].code() for one in errors if isinstance(one, KafkaException)}


def silent(settings: KafkaSettings, error: Exception) -> EnvironmentUnfitError:
    """Return the error for a broker that does not answer or refuses to."""
    said = error.args[0].str().strip()
    if not said or said.endswith(":"):  # Some errors have no text of their own.
        said = f"{said} {error.args[0].name()}".strip()
    return EnvironmentUnfitError(
        f"a request to Kafka at {settings.bootstrap_servers} failed: {said}",
        hint="check the brokers, their addresses in SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS and your "
        f"permissions{_OR}",
    )


def _opened(
    settings: KafkaSettings, kind: Callable[[ModuleType], Callable[..., T]], options: KafkaOptions
) -> T:
    """Open a client; options in the settings win."""
    servers = _servers(settings)
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise MissingExtraError(
            "the query reads from Kafka, but the Kafka client is not installed",
            hint=f"pip install 'savepoints[kafka]'{_OR}",
        ) from None
    try:
        # Without a logger it writes to stderr itself, including the servers.
        given = security.for_client(settings.options)
        return kind(confluent_kafka)({**servers, **options, **given}, logger=_LOG)
    except confluent_kafka.KafkaException as error:
        raise EnvironmentUnfitError(
            f"the Kafka client rejects an option: {error.args[0].str()}",
            hint="correct [kafka.options] in the settings",
        ) from None


def _servers(settings: KafkaSettings) -> KafkaOptions:
    if not settings.bootstrap_servers:
        raise EnvironmentUnfitError(
            "the query reads from Kafka, but no broker is configured, so its offsets cannot be "
            "looked up",
            hint=f"set SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS{_OR}",
        )
    return {"bootstrap.servers": settings.bootstrap_servers}
