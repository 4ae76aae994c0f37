"""Run a complete demo story on real services on this machine.

`rollback`: a query counts real orders from Kafka into a Delta table on S3 and takes savepoints
while it runs; a bug corrupts state and output, a rollback takes everything back, and the correct
version continues. Another rollback goes to a day between two savepoints, and is undone.

`ab`: two versions start from one savepoint, read the same orders and are compared; the second one
takes over from the live query, and that is undone.

`late`: last year's orders arrive today and are merged as if they had arrived on time.

`pipeline`: orders go through bronze, silver and gold; savepoints of all three are taken as one, and
late orders are merged through all of them, which are then taken back as one.

Each story compares its result with a pandas computation over the raw file.
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
    "name",
    metavar="[STORY]",
    type=click.Choice(["rollback", "ab", "late", "pipeline"]),
    default="rollback",
)
@click.option(
    "--keep", is_flag=True, help="Leave Kafka and S3 running at the end, and keep the store."
)
@common
def command(call: Invocation, name: str, *, keep: bool) -> int:
    """Run a complete demo with real orders, on Kafka, S3 and Delta.

    STORY is one of: rollback (undo what a bug corrupted), ab (compare two versions of a query that
    start from the same state, and write a report to the current directory), late (merge last year's
    orders into a live query) or pipeline (merge late orders through a chain of three queries, in
    which each one reads the table of the one before it).

    Starts everything on free ports on this machine, and stops it at the end. Exit code 1 if the
    result is not exactly right.

    \b
    Examples:
      savepoints demo
      savepoints demo ab
      savepoints demo late
      savepoints demo pipeline
      savepoints demo --keep
    """
    missing = [one for one in _NEEDED if find_spec(one) is None]
    if missing:
        raise MissingExtraError(
            f"the demo needs packages that are not installed: {', '.join(missing)}",
            hint="pip install 'savepoints[demo]' && pip install --no-deps lifetimes==0.11.3",
        )
    from savepoints.cli.demo.story import BUCKET
    from savepoints.cli.demo.story_ab import AbStory
    from savepoints.cli.demo.story_late import LateStory
    from savepoints.cli.demo.story_pipeline import PipelineStory
    from savepoints.cli.demo.story_rollback import RollbackStory
    from savepoints.local import LocalWorld

    directory = Path(tempfile.mkdtemp(prefix="savepoints-demo-"))
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        call.output.progress("starting Kafka and S3 (the first run downloads 129 jars)")
        world = LocalWorld.start(directory / "world", detach=keep)
        if keep:
            cleanup.callback(LocalWorld.stop_detached, directory / "world")
        else:
            cleanup.callback(world.stop)
        world.create_bucket(BUCKET)
        stories: dict[str, type[RollbackStory | AbStory | LateStory | PipelineStory]] = {
            "rollback": RollbackStory,
            "ab": AbStory,
            "late": LateStory,
            "pipeline": PipelineStory,
        }
        story = stories[name](call.output, world, directory)
        right = story.tell()
        story.say_what_next(keep=keep)
        if keep:
            cleanup.pop_all()
    return 0 if right else 1
