"""Two savepoints beside each other, by what the catalog says of them; no state is read."""

from __future__ import annotations

from savepoints.store.root import Store
from savepoints.store.tables import catalog
from savepoints.ui import savepoint_rows
from savepoints.ui.environment import environment


def page(store: Store, before: str, after: str) -> str:
    """Return a page that asks for two savepoints, and compares them when both are given.

    Args:
        before: Id, prefix, tag, `latest`, `latest~2` or `@TIME`; empty for none yet.
        after: Likewise.

    Raises:
        SavepointNotFoundError: If there is none of that name.
        AmbiguousNameError: If there are several.
    """
    store = store.snapshot()
    known = catalog.select(store.catalog.all())
    names = [one.id for one in known] + [tag for one in known for tag in one.tags]
    template = environment().get_template("difference.html.j2")
    if not (before and after):
        return template.render(
            store=store.root, names=names, before=before, after=after, changes=(), command=""
        )
    first, second = store.catalog.find(before), store.catalog.find(after)
    return template.render(
        store=store.root,
        names=names,
        before=first.id,
        after=second.id,
        changes=savepoint_rows.changes(first, second),
        command=f"savepoints diff {first.id} {second.id}",
    )
