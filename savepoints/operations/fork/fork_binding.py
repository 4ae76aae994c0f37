"""What a fork runs and where it lives: the settings' word, the flags', or the origin's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from savepoints.config.settings import QuerySettings
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import OutputVersion, Savepoint
from savepoints.operations.savepoint import history
from savepoints.runtime import app as apps
from savepoints.store import bindings
from savepoints.store.root import Store
from savepoints.uri import spelled


@dataclass(frozen=True)
class Bound:
    """What a fork is bound to.

    Attributes:
        settings: As a table `[queries.NAME]` would say it.
        copied: Outputs of the savepoint that get a table of their own.
        has_other_program: It runs another program than the savepoint was taken from.
    """

    settings: QuerySettings
    copied: tuple[OutputVersion, ...]
    notes: tuple[str, ...]
    has_other_program: bool


@dataclass(frozen=True)
class _Program:
    """What is known of an application."""

    reference: str
    name: str
    outputs: tuple[str, ...]


def bind_fork(
    store: Store,
    saved: Savepoint,
    name: str,
    *,
    app: str | None,
    checkpoints: str | None,
    outputs: Mapping[str, str],
) -> Bound:
    """Find out what a fork is bound to."""
    generations = {saved.query: saved.generation}
    completed = bindings.complete(store, generations=generations)
    origin, table = completed.queries.get(saved.query), store.settings.queries.get(name)
    saved = history.named_as_bound(saved, completed)
    if table is not None:
        _refuse_contradictions(name, table, app, checkpoints, outputs)
    follows = table or origin
    reference = app or (follows.app if follows else saved.application)
    program = _program(reference, name, saved, origin)
    pinned = {one.name: one for one in saved.outputs}
    tables = _tables(name, program, pinned, origin, table, outputs)
    bound = QuerySettings(
        app=program.reference,
        app_name=program.name if program.name != name else None,
        checkpoints=_checkpoints(name, checkpoints, follows),
        outputs=tables,
        app_ids=table.app_ids if table else {},
        own_rows=table.own_rows if table else {},
        topics=follows.topics if follows else {},
        tables=follows.tables if follows else {},
        archives=follows.archives if follows else {},
        trigger=follows.trigger if follows else None,
        max_offsets_per_trigger=follows.max_offsets_per_trigger if follows else None,
    )
    if table is not None and table.app_name not in {bound.app_name, program.name}:
        raise UsageError(
            f"the application {program.reference} is named {program.name!r}, but "
            f"[queries.{name}] does not allow it to run under another name",
            hint=f'set app_name = "{program.name}" in [queries.{name}]',
            query=name,
        )
    copied = tuple(one for one in saved.outputs if one.name in tables)
    known = origin.app if origin else saved.application
    notes = _notes(saved, program, origin, tables, pinned)
    has_other_program = known != program.reference
    if has_other_program:
        notes.append(
            f"the fork runs {program.reference}, but the savepoint was taken from "
            f"{known or 'an unknown program'}"
        )
    return Bound(bound, copied, tuple(notes), has_other_program)


def _program(
    reference: str | None, name: str, saved: Savepoint, origin: QuerySettings | None
) -> _Program:
    if reference is None:
        raise UsageError(
            f"the program of the fork {name} is unknown, because {saved.query} is not in the "
            "settings",
            hint="name the program with --app MODULE:ATTR",
            query=name,
        )
    if origin is not None and reference == origin.app and origin.app_name is None:
        # It runs under its own name, so it need not be there to be forked.
        known = {**origin.outputs, **{one.name: one.uri for one in saved.outputs}}
        return _Program(reference, saved.query, tuple(known))
    found = apps.load(reference)
    return _Program(reference, found.name, tuple(found.outputs))


def _tables(
    name: str,
    program: _Program,
    pinned: Mapping[str, OutputVersion],
    origin: QuerySettings | None,
    table: QuerySettings | None,
    given: Mapping[str, str],
) -> dict[str, str]:
    """Return the table of each output of the program."""
    if unknown := sorted(given.keys() - set(program.outputs)):
        raise UsageError(
            f"{program.reference} has no output {unknown[0]!r}"
            + (f", only {', '.join(program.outputs)}" if program.outputs else ""),
            hint="omit this --table, or correct the name of the output in it",
            query=name,
        )
    if table is not None:
        _require(name, program.outputs, table.outputs)
        return {one: table.outputs[one] for one in program.outputs}
    original = {
        **(origin.outputs if origin else {}),
        **{one: output.uri for one, output in pinned.items()},
    }
    tables = {
        one: str(Location.of(given.get(one) or f"{original[one].rstrip('/')}_forks/{name}"))
        for one in program.outputs
        if one in given or one in original
    }
    _require(name, program.outputs, tables)
    return tables


def _require(name: str, outputs: Iterable[str], tables: Mapping[str, str]) -> None:
    for one in outputs:
        if one not in tables:
            raise UsageError(
                f"the output {one} of the fork {name} has no table",
                hint=f"name one with --table {one}=s3://bucket/path, or in "
                f"[queries.{name}.outputs] if the settings define this query",
                query=name,
                output=one,
            )


def _checkpoints(name: str, given: str | None, follows: QuerySettings | None) -> str:
    found = given or (follows.checkpoints if follows else None)
    if found is None:
        raise UsageError(
            f"the directory for the checkpoints of the fork {name} is unknown",
            hint="set it with --checkpoints s3://bucket/checkpoints",
            query=name,
        )
    return found


def _refuse_contradictions(
    name: str,
    table: QuerySettings,
    app: str | None,
    checkpoints: str | None,
    outputs: Mapping[str, str],
) -> None:
    """Refuse flags that say something else than the settings, which would win later on."""
    pairs = [
        ("--app", app, table.app),
        ("--checkpoints", checkpoints, table.checkpoints),
        *(("--table", uri, table.outputs.get(one)) for one, uri in outputs.items()),
    ]
    for option, given, there in pairs:
        if given is not None and (there is None or spelled(given) != spelled(there)):
            raise UsageError(
                f"{option} {given} contradicts [queries.{name}] in the settings, which has "
                f"{there or 'no value for it'}",
                hint=f"omit the option, or change [queries.{name}]",
                query=name,
            )


def _notes(
    saved: Savepoint,
    program: _Program,
    origin: QuerySettings | None,
    tables: Mapping[str, str],
    pinned: Mapping[str, OutputVersion],
) -> list[str]:
    notes = [
        f"{program.reference} has no output {one}, so this output is not forked"
        for one in pinned
        if one not in tables
    ]
    notes += [
        f"the savepoint does not include the output {one}, so {uri} starts empty"
        for one, uri in tables.items()
        if one not in pinned
    ]
    notes += [
        f"other writers also write to {pinned[one].uri}: their rows up to version "
        f"{pinned[one].version} are copied to the fork's table as well"
        for one in (origin.own_rows if origin else {})
        if one in pinned and one in tables
    ]
    notes += [
        f"{saved.query} writes to topic {one.topic}: if the fork's program writes to topics, make "
        "it use other ones, or readers will get the records of both"
        for one in saved.output_topics
    ]
    if not pinned:
        notes.append(f"the savepoint {saved.id} has no outputs, so no rows will be copied")
    return notes
