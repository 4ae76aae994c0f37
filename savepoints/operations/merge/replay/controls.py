"""The proof of a merge: entities that no late event touches come out as the live query has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.state import layout
from savepoints.config.settings import QuerySettings
from savepoints.operations.merge.replay.entity_replay import MergeReplay
from savepoints.outputs.correct import controls as correct_controls
from savepoints.outputs.correct.controls import OutputControls
from savepoints.sources.late import affected_entities
from savepoints.spark import threads
from savepoints.texts import count_text

if TYPE_CHECKING:
    from savepoints.model import OutputVersion
    from savepoints.state.merge.controls import StateControls


@dataclass(frozen=True)
class Proof:
    """What became of the control entities."""

    state_different: int
    outputs: tuple[OutputControls, ...]
    samples: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether all came out as they are."""
        return not self.state_different and not any(one.entities for one in self.outputs)

    @property
    def text(self) -> str:
        """What differs, with an example."""
        found = []
        if self.state_different:
            found.append(f"{count_text(self.state_different, 'row')} of state")
        found += [
            f"{count_text(one.missing + one.extra, 'row')} of {one.output}"
            for one in self.outputs
            if one.entities
        ]
        return (
            f"{' and '.join(found)} of the control entities, which no late event touches, differ "
            f"from the live query, for example {self.samples[0]}"
        )


def compare_controls(replay: MergeReplay, bound: QuerySettings, tolerance: float) -> Proof:
    """Compare the controls at the cut up to which was replayed."""
    from savepoints.state.merge import controls as merge_controls
    from savepoints.state.merge import touched_partitions
    from savepoints.state.storage.row_sources import CheckpointRows

    assignment = replay.assignment
    mine = assignment.replayed.where("control")
    app = assignment.live.inputs.app
    rows = replay.outputs()

    def compare_state() -> StateControls:
        whole = CheckpointRows.of(assignment.spark, replay.cut, read_cut(replay.cut))
        place = replay.replay.place / "controls"
        return merge_controls.compare_states(
            touched_partitions.narrowed(whole, mine.select("entity"), place),
            replay.state(),
            replay.replay.operators,
            replay.fields(),
            mine.select("entity"),
            layout=layout.read(replay.cut),
            tolerance=tolerance,
        )

    def compare_output(one: OutputVersion) -> OutputControls:
        return correct_controls.compare_rows(
            assignment.spark,
            one,
            affected_entities.versioned(mine, assignment.base_versions(one.name)),
            rows,
            mode=app.outputs[one.name].mode,
            key=app.outputs[one.name].key,
            entity=assignment.affected.entity_of(one.name),
            everybody=assignment.replayed.select("entity"),
            own_rows=bound.own_rows.get(one.name),
            tolerance=tolerance,
            selection=app.outputs[one.name].selection,
        )

    # Most of the time goes into planning, which one query after the other does on one core.
    with threads.pool() as pool:
        of_state = pool.submit(compare_state)
        outputs = tuple(pool.map(compare_output, replay.proof.outputs))
        state = of_state.result()
    samples = [
        f"{one.entity} in operator {one.operator_id}: {one.live} live, {one.replayed} replayed"
        for one in state.sample
    ] + [f"{each} in {one.output}" for one in outputs for each in one.sample]
    return Proof(state.different, outputs, tuple(samples))
