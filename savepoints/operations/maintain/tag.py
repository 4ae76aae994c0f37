"""`tag`: give a savepoint names, a description, a pin; or take them away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from savepoints.errors import TargetExistsError, UsageError
from savepoints.model import Labels, Savepoint, checked_tag
from savepoints.observe.recorder import recorded
from savepoints.plan import Plan, Progress, Step
from savepoints.store.root import Store
from savepoints.store.savepoint import labels
from savepoints.store.tables import tags


@dataclass(frozen=True)
class TagPlan(Plan):
    """What `tag` is going to do.

    Attributes:
        savepoint_id: Id of the savepoint.
        add: Tags to give it.
        remove: Tags to take away.
        description: A new description; None for no change.
        pinned: Whether retention is to leave it alone; None for no change.
        taken_from: Savepoints that lose a tag, by tag.
    """

    savepoint_id: str
    add: tuple[str, ...]
    remove: tuple[str, ...]
    description: str | None
    pinned: bool | None
    taken_from: dict[str, str]

    def relabelled(self, old: Labels) -> Labels:
        """Return what the labels become; those of what is being removed stay."""
        if old.state == "expired":
            return old
        return replace(
            _changed(old, self.add, self.remove),
            description=old.description if self.description is None else self.description,
            pinned=old.pinned if self.pinned is None else self.pinned,
        )


def plan(
    store: Store,
    name: str,
    *,
    query: str | None = None,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    description: str | None = None,
    pinned: bool | None = None,
    move: bool = False,
) -> TagPlan:
    """Plan a change of tags, description or pin; nothing is written.

    Args:
        name: Names the savepoint.
        add: Tags to give it.
        remove: Tags to remove; a tag that it does not have is an error.
        description: A new one; an empty text removes it.
        pinned: Whether retention leaves it alone.
        move: Take the tags away from savepoints that have them.

    Raises:
        UsageError: If nothing is asked for, if a tag cannot be one, or if one that is to be removed
            is not there.
        SavepointNotFoundError: If there is no such savepoint.
        TargetExistsError: If another savepoint of the query has a tag.
    """
    store = store.snapshot()
    if not (add or remove) and description is None and pinned is None:
        raise UsageError(
            "nothing to change: no tag or option was given",
            hint="pass tags, --remove TAG, --description TEXT, --pin or --unpin",
        )
    for tag in add:
        checked_tag(tag)
    known = store.catalog.all()
    savepoint = store.catalog.find(name, query=query)
    missing = [tag for tag in remove if tag not in savepoint.tags]
    if missing:
        raise UsageError(
            f"{savepoint.id} has no tag {missing[0]!r}",
            hint=f"name one of its tags: {', '.join(savepoint.tags)}"
            if savepoint.tags
            else "omit --remove, because this savepoint has no tags",
            savepoint=savepoint.id,
            tags=list(savepoint.tags),
        )
    holders = tags.tagged(known, savepoint.query, add, but=[savepoint.id])
    if not move:
        tags.require_free(known, savepoint.query, add, but=[savepoint.id])
    steps = [
        *(Step("tagged", f"add the tag {tag}") for tag in add if tag not in savepoint.tags),
        *(Step("moved", f"remove the tag {tag} from {one}") for tag, one in holders.items()),
        *(Step("untagged", f"remove the tag {tag}") for tag in remove),
    ]
    if description is not None:
        what = f"set the description: {description}" if description else "remove the description"
        steps.append(Step("described", what))
    if pinned is not None:
        what = "pin it: retention will never remove it" if pinned else "unpin it"
        steps.append(Step("pinned" if pinned else "unpinned", what))
    return TagPlan(
        verb="tag",
        query=savepoint.query,
        steps=tuple(steps),
        warnings=(),
        savepoint_id=savepoint.id,
        add=tuple(add),
        remove=tuple(remove),
        description=description,
        pinned=pinned,
        taken_from=holders,
    )


@recorded
def execute(plan: TagPlan, store: Store) -> Savepoint:
    """Change it, and return the savepoint as it is then. Running it again changes nothing more.

    Raises:
        SavepointNotFoundError: If it was removed meanwhile, or is being removed.
        TargetExistsError: If another savepoint was given a tag meanwhile.
    """
    store.catalog.find(plan.savepoint_id)
    _require_still_free(plan, store)
    changed = store.catalog.relabel([plan.savepoint_id], plan.relabelled)
    if not changed or changed[0].state == "expired":
        # It was marked at this very moment: what is removed has no use for a name.
        return store.catalog.find(plan.savepoint_id)
    try:
        _require_still_free(plan, store)
    except TargetExistsError:
        # Both were free when they looked; whoever looks again sees the other.
        store.catalog.relabel([plan.savepoint_id], lambda old: _changed(old, (), plan.add))
        raise
    # Last: a tag that is nowhere would protect nothing.
    if plan.taken_from:
        store.catalog.relabel(
            list(plan.taken_from.values()), lambda old: _changed(old, (), plan.add)
        )
    return changed[0]


def without_taken(
    store: Store, savepoint: Savepoint, known: Iterable[Savepoint], progress: Progress
) -> Savepoint:
    """Return a savepoint that is to get its row back, without tags that name others by now.

    Its labels say so from then on, too. Somebody took another one, since this one was not there.

    Args:
        known: Those that have rows.
    """
    taken = tags.tagged(known, savepoint.query, savepoint.tags, but=[savepoint.id])
    if not taken:
        return savepoint
    progress(f"{savepoint.id} loses tags that name others: {', '.join(taken)}")
    said = labels.change(store.root, savepoint, lambda old: _changed(old, (), [*taken]))
    return savepoint.with_labels(said)


def _require_still_free(plan: TagPlan, store: Store) -> None:
    expected = {plan.savepoint_id, *plan.taken_from.values()}
    tags.require_free(store.catalog.all(), plan.query, plan.add, but=expected)


def _changed(old: Labels, add: Sequence[str], remove: Sequence[str]) -> Labels:
    kept = [tag for tag in old.tags if tag not in remove]
    return replace(old, tags=tuple(dict.fromkeys([*kept, *add])))
