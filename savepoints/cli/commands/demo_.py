"""Run the whole story on real parts on this machine.

`rollback`: a query counts real orders from Kafka into a Delta table on S3, savepoints are written
while it runs, a bug spoils state and output, a rollback takes everything back, the right version
goes on, another rollback goes to exactly a day between two savepoints and is undone.

`ab`: two versions go on from one savepoint over the same orders, are compared, and the second one
takes over from the live query and is taken back.

`late`: orders of last year arrive today, and are worked in as if they had come in time.

Each time the result is compared with a computation in pandas over the raw file.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import click

from savepoints.cli.options import Invocation, common
from savepoints.errors import MissingExtraError

_NEEDED = (
    "pyspark", "delta", "confluent_kafka", "fastavro", "moto", "lifetimes", "pandas", "jinja2",
)  # fmt: skip


@click.command("demo")
@click.argument(
    "name", metavar="[STORY]", type=click.Choice(["rollback", "ab", "late"]), default="rollback"
)
@click.option("--keep", is_flag=True, help="Leave Kafka, S3 and the store up afterwards.")
@common
def command(call: Invocation, name: str, *, keep: bool) -> int:
    """Run the whole story on real Kafka, S3, Delta and real orders.

    STORY is rollback (what a bug spoiled is taken back), ab (two versions from one state, which
    leaves its report in this directory) or late (orders of last year are merged into the live
    query). Starts everything on free ports of this machine and stops it at the end. Exit code 1
    when the result is not exactly right.

    \b
    Examples:
      savepoints demo
      savepoints demo ab
      savepoints demo late
      savepoints demo --keep
    """
    missing = [one for one in _NEEDED if find_spec(one) is None]
    if missing:
        raise MissingExtraError(
            f"the demo needs more than is installed: {', '.join(missing)}",
            hint="pip install 'savepoints[demo]' && pip install --no-deps lifetimes==0.11.3",
        )
    from savepoints.cli.demo.story import BUCKET
    from savepoints.cli.demo.story_ab import AbStory
    from savepoints.cli.demo.story_late import LateStory
    from savepoints.cli.demo.story_rollback import RollbackStory
    from savepoints.local import LocalWorld

    directory = Path(tempfile.mkdtemp(prefix="savepoints-demo-"))
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        call.output.progress("starting Kafka and S3 (the first time, 129 jars are downloaded)")
        world = LocalWorld.start(directory / "world", detach=keep)
        if keep:
            cleanup.callback(LocalWorld.stop_detached, directory / "world")
        else:
            cleanup.callback(world.stop)
        world.create_bucket(BUCKET)
        stories: dict[str, type[RollbackStory | AbStory | LateStory]] = {
            "rollback": RollbackStory,
            "ab": AbStory,
            "late": LateStory,
        }
        story = stories[name](call.output, world, directory)
        right = story.tell()
        story.say_what_next(keep=keep)
        if keep:
            cleanup.pop_all()
    return 0 if right else 1
