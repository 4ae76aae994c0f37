"""Will the savepoints of a query that takes them by itself ever be deleted?"""

from __future__ import annotations

from collections.abc import Sequence

from savepoints.config.settings import RetentionSettings
from savepoints.errors import VerificationError
from savepoints.model import Savepoint
from savepoints.moments import utc_now
from savepoints.operations.inspect.findings import Seen
from savepoints.operations.maintain import expire, removal
from savepoints.store.retention_policy import RetentionPolicy, decide
from savepoints.store.root import Store
from savepoints.texts import bytes_text, count_text


def check_growth(store: Store) -> list[Seen]:
    """Look at every query whose savepoints become more although nobody types a command."""
    known, settings = store.catalog.all(), store.settings
    living = {one.query for one in store.generations.living()}
    every = {name for name, bound in settings.queries.items() if bound.every}
    names = sorted(every | (living & {one.query for one in known if one.kind == "periodic"}))
    applied = _applied(store)
    if not names or applied is None:
        return []
    policies = {name: expire.policy_of(settings, name) for name in names}
    decisions = decide(known, policies, removal.needed(store), now=utc_now())
    seen = []
    for name in names:
        mine = [one for one in decisions if one.savepoint.query == name]
        section = expire.section_of(settings, name)
        by_hand = bool({None, name} & applied)
        going = sum(not one.kept for one in mine)
        seen.append(_of_query(name, [one.savepoint for one in mine], going, section, by_hand))
    return seen


def _applied(store: Store) -> set[str | None] | None:
    """Return of which queries `expire` was run, None among them for all; None if nobody knows."""
    try:
        return {one.query for one in store.events.all() if one.verb == "expire"}
    except VerificationError:
        return None  # That the events are damaged is said elsewhere.


def _of_query(
    name: str, mine: Sequence[Savepoint], going: int, section: RetentionSettings, by_hand: bool
) -> Seen:
    what, policy = f"retention of {name}", RetentionPolicy.of(section)
    size = sum(one.cost.bytes_copied + one.cost.export_bytes for one in mine)
    so_far = f"{count_text(len(mine), 'savepoint')} so far, {bytes_text(size)}"
    if policy.is_empty:
        if by_hand:
            return Seen(what, "ok", f"by the rules that savepoints expire is given; {so_far}")
        return Seen(
            what,
            "warning",
            f"no rule says which savepoints are kept, so none is ever deleted: {so_far}",
            "set [retention] in the settings, for example keep_last = 6, keep_daily = 7 and "
            "after_savepoint = true; to keep all, set keep_last = -1",
        )
    if section.after_savepoint:
        return Seen(what, "ok", f"{policy}, after each periodic savepoint; {so_far}")
    if by_hand or not going:
        return Seen(what, "ok", f"{policy}, when savepoints expire is run; {so_far}")
    return Seen(
        what,
        "warning",
        f"{going} of {count_text(len(mine), 'savepoint')} are not kept by the rules ({policy}), "
        "but nothing has ever applied these",
        "set after_savepoint = true in [retention], or have a scheduler run: savepoints expire "
        f"--query {name} --yes",
    )
