"""What a rollback of several queries does and what to know before it: the words of its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from savepoints.operations.pipeline.joint_plan import step_of
from savepoints.operations.pipeline.pipeline_graph import FindingKind, Pipeline
from savepoints.operations.pipeline_rollback import rollback_cut
from savepoints.operations.pipeline_rollback.pipeline_member import PipelineMember
from savepoints.operations.pipeline_rollback.rollback_cut import MemberCut
from savepoints.operations.rollback import safety_savepoint
from savepoints.outputs.rewind import plan_text
from savepoints.plan import Step
from savepoints.texts import offsets_text

# What such queries read is not known.
_MAY_READ: frozenset[FindingKind] = frozenset({"unreadable_checkpoint", "no_batch", "no_position"})


def steps(
    members: Sequence[PipelineMember], cuts: Sequence[MemberCut], paused: Sequence[str]
) -> Iterator[Step]:
    """Return the steps of all queries by what is done, in the order in which it is done."""
    yield from (Step("paused", f"pause {query}") for query in paused)
    own = [(one.query, step) for one in members for step in one.rollback.steps]

    def named(is_wanted: Callable[[str], bool]) -> Iterator[Step]:
        for query, step in own:
            if is_wanted(step.name):
                yield step_of(query, step)

    yield from named(lambda name: name == "safety_savepoint")
    yield from named(lambda name: name == "checkpoint_written")
    yield from named(lambda name: name.startswith("output_"))
    read = {(one.writer, one.topic): None for cut in cuts for one in cut.topic_reads}
    for writer, topic in read:
        yield step_of(writer, Step("topics_ended", f"record the end offsets of topic {topic}"))
    for cut in cuts:
        query = cut.savepoint.query
        for what in rollback_cut.described(cut):
            yield step_of(query, Step("followed", what))
    for cut in cuts:
        query = cut.savepoint.query
        if cut.ends is not None and (cut.reads or cut.ends != "[]"):
            yield step_of(query, Step("advanced", rollback_cut.run_on_text(cut)))
    yield from named(lambda name: name == "generation_begun")
    for one in members:
        saved = safety_savepoint.first_step(one.first_id, one.rollback.generation)
        yield from (step_of(one.query, step) for step in saved)
    yield from (Step("resumed", f"resume the run of {query}") for query in paused)


def notes(found: Pipeline, members: Sequence[PipelineMember]) -> Iterator[str]:
    """Return what else a person should know: of each query, and of readers that do not go back."""
    ours = {
        output.output.uri: [
            one.query for one in members for read in one.reads
            if read.table_uri == output.output.uri
        ]
        for member in members
        for output in member.rollback.outputs
    }  # fmt: skip
    known = {
        note
        for one in members
        for output in one.rollback.outputs
        for note in plan_text.reader_notes(output)
    }
    for one in members:
        yield from (f"{one.query}: {note}" for note in one.rollback.warnings if note not in known)
    for uri, readers in ours.items():
        names = " and ".join(dict.fromkeys(readers))
        who = f"{names} will be rolled back as well; any other" if readers else "a"
        yield (
            f"{uri}: {who} streaming reader fails at the rewind unless it sets "
            "skipChangeCommits, and then it keeps the rows that were rolled back"
        )
    yield from _about_topics(found, members)
    yield (
        "effects outside the outputs of the queries, such as messages to other systems, are "
        "not rolled back"
    )
    inside = {one.query for one in members}
    for finding in found.findings:
        if finding.kind in _MAY_READ and not inside & {*finding.queries}:
            yield f"not rolled back, although it may read these tables: {finding.what}"


def _about_topics(found: Pipeline, members: Sequence[PipelineMember]) -> Iterator[str]:
    """Say what becomes of the topics that the queries write, and of who reads them."""
    reads = [read for one in members for read in one.topic_reads]
    inside = {one.query for one in members}
    for query in found.queries:
        for topic in query.output_topics if query.name in inside else ():
            ends = next((one.ends for one in reads if one.topic == topic), None)
            since = "" if ends is None else f" (from offsets {offsets_text(ends)} on)"
            readers = [one.reader for one in found.topic_edges if one.topic == topic]
            names = " and ".join(dict.fromkeys(readers))
            who = f"{names} will read only the new records; " if readers else ""
            yield (
                f"topic {topic} keeps the rolled-back records of {query.name}{since}, and gets the "
                f"records of the same batches again: {who}any other reader sees both. Records "
                "that others have written in between are skipped as well"
            )
