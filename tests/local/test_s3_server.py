"""The S3 servers of the tests: of conditional writes at one moment one wins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from savepoints.local import s3
from savepoints.local.service import Launch, Service
from tests import draw
from tests.races import Races

# Between looking and writing, other threads of the server come to their turn by chance, once in
# hundreds of races. Here they do so each time.
HESITANT = """
import time
from functools import wraps
from moto.s3.models import S3Backend
from savepoints.local import s3_server

look = S3Backend.get_object

@wraps(look)
def look_and_wait(*arguments, **options):
    found = look(*arguments, **options)
    time.sleep(0.0005)
    return found

S3Backend.get_object = look_and_wait
s3_server.main()
"""


@pytest.fixture(scope="module")
def races(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Races]:
    """Start a server that hesitates between looking and writing."""

    def prepare() -> Launch:
        launch = s3.prepare_s3()
        return replace(launch, command=(sys.executable, "-c", HESITANT, *launch.command[3:]))

    service = Service("s3", prepare, tmp_path_factory.mktemp("hesitant-s3"), detach=False)
    try:
        service.wait_ready()
        s3.create_bucket(service.endpoint, "races")
        yield Races(service.endpoint, "races")
    finally:
        service.stop()


@draw.taking_turns("conditional writes at once", "alerts on figures")
@pytest.mark.parametrize(
    "count", [pytest.param(20, id="few"), pytest.param(450, id="many", marks=pytest.mark.nightly)]
)
def test_trap_of_many_conditional_writes_at_once_one_wins(races: Races, count: int) -> None:
    run = [*races.create(count), *races.replace(count), *races.complete(count // 4)]

    assert [race for race in run if not race.is_fair] == []


@pytest.mark.nightly
def test_of_many_at_once_one_wins_on_the_second_server(second_s3_endpoint: str) -> None:
    races = Races(second_s3_endpoint, "tests")

    run = [*races.create(450), *races.replace(450), *races.complete(112)]

    assert [race for race in run if not race.is_fair] == []
