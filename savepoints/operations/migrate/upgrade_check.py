"""`upgrade check`: whether a changed program can go on with the state of a savepoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from savepoints.checkpoint.evolution import program_layout as saved_layout
from savepoints.checkpoint.evolution import renames, upgrade
from savepoints.checkpoint.evolution.findings import Column, Reason, worst
from savepoints.checkpoint.evolution.operator_pairs import Transfer
from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.evolution.upgrade import OperatorComparison, OperatorVerdict, Upgrade
from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.checkpoint.logs.offset_log import AGGREGATE_FORMAT_KEY
from savepoints.checkpoint.logs.source_positions import Starts
from savepoints.checkpoint.state import avro
from savepoints.checkpoint.state.operators import UNNAMED
from savepoints.config.settings import Settings
from savepoints.errors import IncompatibleError, NativeOnlyError
from savepoints.model import Provider, Savepoint
from savepoints.operations.migrate import program_layout
from savepoints.operations.migrate.program_layout import NewProgram
from savepoints.operations.savepoint import restore
from savepoints.operations.savepoint.state_rows import state_rows
from savepoints.plan import Progress, silent
from savepoints.store import bindings
from savepoints.store.root import Store
from savepoints.store.savepoint import manifest

_NOT_SEEN = (
    "filters, maps and the inputs of aggregates leave no trace in the state: max(a) cannot be "
    "told apart from max(b) of the same type"
)
_BY_NAME = (
    "Spark reads state in Avro by the names of its fields: those that are new are null in older "
    "state, and those that are gone are passed over. No migration is needed"
)


@dataclass(frozen=True)
class ProgramComparison:
    """A savepoint and a changed program.

    Attributes:
        transfers: How each store of the program gets its rows.
        is_evolved: The rows are of several schemas, or of another one than the program's, which
            only Spark reads, by the schemas in the savepoint.
    """

    savepoint: Savepoint
    program: NewProgram
    upgrade: Upgrade
    transfers: tuple[Transfer, ...]
    is_evolved: bool = False


def upgrade_check(
    store: Store,
    name: str,
    *,
    app: str,
    query: str | None = None,
    maps: Sequence[str] = (),
    defaults: Mapping[str, str] | None = None,
    sources: Starts | None = None,
    progress: Progress = silent,
) -> Upgrade:
    """Compare a program with a savepoint: operators, variables and columns, by name.

    The program is run once on empty inputs; no event is processed and nothing is changed.

    Args:
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME`.
        app: The program, `package.module:attribute`.
        maps: Renamed columns and variables, as `old=new`; see
            `savepoints.checkpoint.evolution.renames`.
        defaults: Initial values of new columns, as text by column.
        sources: Where each source of the program is to continue; then topics are not compared.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        AmbiguousNameError: If several fit.
        UsageError: If the program cannot be imported, or something mapped is not there.
        NativeOnlyError: If Spark has not described the state of the savepoint.
        SavepointsError: If the program fails.
    """
    settings = bindings.complete(store)
    if sources is not None:
        savepoint = store.catalog.find(name, query=query)
        restore.source_map(store, store.manifest(savepoint.id), sources)
    found = compare_program(
        store,
        name,
        app,
        query=query,
        maps=maps,
        settings=settings,
        progress=progress,
        defaults=defaults,
        are_sources_given=sources is not None,
    )
    return found.upgrade


def compare_program(
    store: Store,
    name: str,
    app: str,
    *,
    query: str | None,
    maps: Sequence[str],
    settings: Settings,
    progress: Progress,
    defaults: Mapping[str, str] | None,
    are_sources_given: bool,
    provider: Provider | None = None,
) -> ProgramComparison:
    """Compare a program with a savepoint; see `upgrade_check`."""
    given = renames.parse(maps)
    savepoint = store.catalog.find(name, query=query)
    _require_described(savepoint, app)
    was = _of_savepoint(store, savepoint)
    now = program_layout.find_out(store, savepoint, app, settings, progress, provider)
    is_avro, saved = avro.is_used(savepoint.settings), was
    if is_avro:
        was = _as_read(was, now.operators)
    functions = replace(
        now.functions,
        aggregates_repeat_keys=savepoint.settings.get(AGGREGATE_FORMAT_KEY, "2") == "1",
    )
    found = upgrade.compare_operators(
        was, now.operators, given=given, defaults=defaults, functions=functions
    )
    operators = [with_types(one, found, is_avro=is_avro) for one in found.operators]
    is_dropping = any(each.families for one in operators for each in one.dropped)
    if is_dropping and "canonical" in savepoint.forms:
        operators = _with_counts(store, savepoint, operators)
    sources = () if are_sources_given else compare_topics(savepoint, now.topics)
    verdicts = [*(one.verdict for one in operators), *(one.verdict for one in sources)]
    notes = (
        *now.notes,
        *_unused(now, found.transfers),
        *((_BY_NAME,) if was != saved else ()),
        *((_NOT_SEEN,) if operators else ()),
    )
    report = Upgrade(savepoint.id, now.reference, worst(verdicts), tuple(operators), sources, notes)
    has_schemas = any(map(avro.is_evolved, (each for one in was for each in one.stores.values())))
    is_evolved = is_avro and (was != saved or has_schemas)
    return ProgramComparison(savepoint, now, report, found.transfers, is_evolved)


def counted(compared: ProgramComparison, store: Store) -> ProgramComparison:
    """Count the rows of a savepoint that has only its native form."""
    operators = _with_counts(store, compared.savepoint, compared.upgrade.operators)
    return replace(compared, upgrade=replace(compared.upgrade, operators=tuple(operators)))


def _require_described(savepoint: Savepoint, app: str) -> None:
    """Refuse a savepoint whose operators are unknown: it would pass for one without state."""
    for one in savepoint.operators:
        if one.name == UNNAMED:
            raise NativeOnlyError(
                f"{app} cannot be compared with the state of savepoint {savepoint.id}: operator "
                f"{one.operator_id} is {UNNAMED}, because Spark before 4.0 wrote no operator "
                "metadata",
                hint="continue with the program that wrote the state: savepoints restore "
                f"{savepoint.id} --to URI; once Spark 4.0 or newer has run a batch of it, take a "
                "new savepoint and compare with that",
                savepoint=savepoint.id,
                operator_id=one.operator_id,
            )


def _of_savepoint(store: Store, savepoint: Savepoint) -> tuple[OperatorShape, ...]:
    """Read the operators of a savepoint; no JVM."""
    small = store.root / manifest.directory(savepoint.id) / "checkpoint"
    rows = {one.operator_id: one.rows for one in savepoint.operators}
    return tuple(
        replace(one, rows=rows.get(one.operator_id))
        for one in saved_layout.read(small, savepoint.settings)
    )


def _as_read(
    was: Sequence[OperatorShape], now: Sequence[OperatorShape]
) -> tuple[OperatorShape, ...]:
    """Return operators in Avro with the values that the program's, of the same number, read."""
    programs = {(one.operator_id, one.name): one.stores for one in now}
    found = []
    for one in was:
        stores = programs.get((one.operator_id, one.name), {})
        read = {name: avro.as_read(each, stores.get(name, ())) for name, each in one.stores.items()}
        found.append(replace(one, stores=read))
    return tuple(found)


def with_types(
    one: OperatorVerdict, found: OperatorComparison, *, is_avro: bool
) -> OperatorVerdict:
    """Add what cannot be written because of its type, and check what columns begin with."""
    from savepoints.state.change import column_transforms
    from savepoints.state.codec import decode

    reasons = []
    for transfer in found.transfers:
        if transfer.operator_id != one.operator_id or transfer.is_untouched:
            continue
        assert transfer.was is not None
        family = str(transfer.schema.column_family)
        if is_avro:
            text = "the rows would have to be rewritten, but they are encoded as Avro"
            reasons.append(Reason("incompatible", family, text))
            continue
        try:
            decode.arrow_fields(transfer.was.value, "value")
            decode.arrow_fields(transfer.schema.value, "value")
            if transfer.key_function or transfer.function:
                decode.arrow_fields(transfer.was.key, "key")
                decode.arrow_fields(transfer.schema.key, "key")
            for column in _begun(transfer.columns):
                column_transforms.start(column)
        except IncompatibleError as error:
            text = f"the rows would have to be rewritten, but {error.message}"
            reasons.append(Reason("incompatible", family, text))
    if not reasons:
        return one
    return replace(one, verdict="incompatible", reasons=(*one.reasons, *reasons))


def _begun(columns: Sequence[Column]) -> list[Column]:
    return [
        each
        for one in columns
        for each in ((one,) if one.source is None else tuple(_begun(one.inner)))
    ]


def _with_counts(
    store: Store, savepoint: Savepoint, operators: Sequence[OperatorVerdict]
) -> list[OperatorVerdict]:
    """Count the rows of what is dropped, and of each operator where nobody has yet."""
    from savepoints.spark.session import session
    from savepoints.state.change import migrate
    from savepoints.state.storage import read

    spark = session(store.settings, f"savepoints upgrade {savepoint.query}")
    own = read.reading_session(spark, savepoint.cut.checkpoint_format)
    with state_rows(store.manifest(savepoint.id), store, own) as saved:
        rows = migrate.counted(saved)
    readable = {one.operator_id for one in savepoint.operators if one.native_only is None}

    def with_count(operator: OperatorVerdict) -> OperatorVerdict:
        number = operator.was_operator_id
        if number not in readable:
            return operator
        dropped = tuple(
            replace(each, rows=sum(rows.get((number, *place), 0) for place in each.families))
            if each.families
            else each
            for each in operator.dropped
        )
        # What the savepoint says is kept: it is by what a loss of rows would be noticed.
        total = operator.rows
        if total is None:
            total = sum(count for place, count in rows.items() if place[0] == number)
        return replace(operator, rows=total, dropped=dropped)

    return [with_count(one) for one in operators]


def compare_topics(savepoint: Savepoint, sources: Sequence[str]) -> tuple[Reason, ...]:
    """Compare the topics that a program reads with those that a savepoint has offsets of.

    Spark gives each source the position at its place in the offset log, whatever it reads.

    Args:
        sources: The topic of each source of the program, in Spark's order.
    """
    positions = [kafka_offsets(one) for one in savepoint.cut.offsets]
    topics = set(sources)
    saved = {topic for one in positions if one for topic in one}
    if not saved:
        text = "the savepoint has no Kafka offsets, so the sources were not compared"
        return (Reason("compatible", "sources", text),)
    hint = (
        "restore the savepoint with --source for each source of the program, or make the program "
        "read the savepoint's topics"
    )
    gone = [
        Reason(
            "incompatible",
            f"topic {topic}",
            "the savepoint has offsets for this topic, but the program does not read it",
            hint,
        )
        for topic in sorted(saved - topics)
    ]
    fresh = [
        Reason(
            "incompatible",
            f"topic {topic}",
            "the program reads this topic, but the savepoint has no offsets for it",
            hint,
        )
        for topic in sorted(topics - saved)
    ]
    if gone or fresh:
        return (*gone, *fresh)
    if len(positions) != len(sources):
        text = f"the savepoint has {len(positions)} sources, and the program {len(sources)}"
        return (Reason("incompatible", "sources", text, hint),)
    return tuple(
        Reason(
            "incompatible",
            f"source {place}",
            f"the savepoint has offsets for {', '.join(sorted(was))} there, but the program "
            f"reads {now}: its inputs are in a different order",
            "put the inputs back in their old order, or restore with --source keep:N for each",
        )
        for place, (was, now) in enumerate(zip(positions, sources, strict=True))
        if was and set(was) != {now}
    )


def _unused(now: NewProgram, transfers: Sequence[Transfer]) -> tuple[str, ...]:
    """Describe functions of a program that nothing uses."""
    used = {name for one in transfers for name in (one.function, one.key_function)}
    return tuple(
        f"the program's `migrate` has {name!r}, which matches none of its states"
        for name in now.app.migrate
        if name not in used
    )
