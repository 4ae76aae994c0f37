"""Settings: flag > `SAVEPOINTS_*` > profile > project's file > `pyproject.toml` > user's > default.

Nested settings are joined by `__` in the environment: `SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS`. Spark
and AWS keep their own names: Spark's go under `[spark.conf]`, AWS' are read from AWS' variables.
"""

from __future__ import annotations

import difflib
import os
import shlex
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from savepoints.config import files as config_files
from savepoints.config import secrets
from savepoints.config.duration import parse_duration
from savepoints.config.files import FILE, Layer
from savepoints.errors import UsageError


def _duration(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    try:
        return parse_duration(str(value))
    except UsageError as error:
        raise ValueError(f"{error.message}; {error.hint}") from None


def _schedule(text: str) -> str:
    from savepoints.config.schedule import parse_schedule

    return _parsed_by(parse_schedule, text)


def _export(text: str) -> str:
    from savepoints.config.schedule import export_schedule

    return _parsed_by(export_schedule, text)


def _parsed_by(parse: Callable[[str], object], text: str) -> str:
    """Return a text that can be parsed; pydantic tells of a ValueError only."""
    try:
        parse(text)
    except UsageError as error:
        raise ValueError(f"{error.message}; {error.hint}") from None
    return text


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("it is not an http:// or https:// URL")
    if "@" in parts.netloc:
        raise ValueError("credentials in the URL would not be sent; use command instead")
    return text


def _command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"it is not a command line: {error}") from None
    if not words:
        raise ValueError("it is empty; omit it")
    return text


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Every = Annotated[str, AfterValidator(_schedule)]
ExportTime = Annotated[str, AfterValidator(_export)]
Count = Annotated[int, Field(ge=-1)]
NotNegative = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Ratio = Annotated[float, Field(ge=0)]
Url = Annotated[str, AfterValidator(_url)]
CommandLine = Annotated[str, AfterValidator(_command)]
HookEvent = Literal["paused", "resumed", "savepoint", "failed"]
ClientOptionsField = Annotated[dict[str, str], AfterValidator(secrets.ClientOptions)]


class _Section(BaseModel):
    # pydantic's errors leave out values: a wrong one may be a password.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class KafkaSettings(_Section):
    """Where Kafka is, and options for its clients under their own names.

    Attributes:
        bootstrap_servers: `host:port`, several with commas between them.
        options: Such as `"security.protocol"`, by the names of librdkafka or of Java, for Spark and
            for the client of the commands; secret ones are never shown.
    """

    bootstrap_servers: str = ""
    options: ClientOptionsField = secrets.ClientOptions()


class SparkSettings(_Section):
    """How a session is made when there is none yet.

    Attributes:
        master: Spark's master URL.
        conf: Spark's own keys and values.
    """

    master: str = "local[*]"
    conf: ClientOptionsField = secrets.ClientOptions()


class RetentionSettings(_Section):
    """Which savepoints `expire` keeps; what no rule keeps is removed. A count of -1 means all.

    Attributes:
        keep_last: How many of the newest to keep.
        keep_hourly: The newest of each of so many hours.
        keep_daily: The newest of each of so many days.
        keep_weekly: The newest of each of so many ISO weeks.
        keep_monthly: The newest of each of so many months.
        keep_within: Keep all within this time of the newest.
        keep_tags: Only these tags protect a savepoint; every tag does when not given.
        after_savepoint: Whether each periodic savepoint is followed by an `expire`.
    """

    keep_last: Count = 0
    keep_hourly: Count = 0
    keep_daily: Count = 0
    keep_weekly: Count = 0
    keep_monthly: Count = 0
    keep_within: Duration | None = None
    keep_tags: tuple[str, ...] | None = None
    after_savepoint: bool = False


class PeriodicSettings(_Section):
    """What follows a periodic savepoint of `run` and `attach`; the table `[periodic]`.

    Attributes:
        export: When the rows of savepoints in both forms are written, beside the query: `newest`
            passes over savepoints that a newer one has overtaken, `each` leaves out none, a
            schedule (`daily`, `6h`, `0 3 * * *`) writes those of the newest at these times, and
            `never` leaves it to `savepoints export`.
    """

    export: ExportTime = "newest"


class HookSettings(_Section):
    """Who is told what happens to a query, as one JSON document each time.

    Attributes:
        command: Program and arguments; the document is its stdin. No shell is involved.
        url: `http://` or `https://`; the document is sent there by POST.
        on: What is told: a run `paused` or `resumed`, a `savepoint` was taken, a run or a savepoint
            `failed`.
        timeout: How long each may take; after that it is given up.
    """

    # Both may have a token in them.
    command: CommandLine | None = Field(default=None, repr=False)
    url: Url | None = Field(default=None, repr=False)
    on: tuple[HookEvent, ...] = get_args(HookEvent)
    timeout: Duration = timedelta(seconds=10)


class ThresholdSettings(_Section):
    """How much two queries may differ for `compare` to call it `within`. Shares are from 0 to 1.

    Attributes:
        rows: Part of the rows of an output that may be missing, extra or changed.
        columns: How many columns of an output may be added, dropped or of another type.
        state_rows: Part of the state rows that may differ.
        metrics: By name of the metric, its relative difference; 0 for those not named.
        seconds: How many times as long as the first query another may have run; anything goes when
            not given.
    """

    rows: Fraction = 0.0
    columns: NotNegative = 0
    state_rows: Fraction = 0.0
    metrics: dict[str, Ratio] = {}
    seconds: Ratio | None = None


class CompareSettings(_Section):
    """What `compare` looks at besides rows, and what it lets pass.

    Attributes:
        metrics: By name, SQL over the outputs (each a view of its name) that gives one number.
        thresholds: How much two queries may differ.
    """

    metrics: dict[str, str] = {}
    thresholds: ThresholdSettings = ThresholdSettings()


class PromoteSettings(_Section):
    """What a fork has to pass before `promote` lets it take over.

    Attributes:
        rows: Part by which the number of rows of an output may differ from the live one's; anything
            but none at all goes when not given.
        max_lag: How many records Kafka may have that neither of the two has read.
        compare: Whether `compare` has to find the two the same, or within its thresholds.
        checks: By name, SQL that gives true: each output of the fork is a view of its name, that of
            the live query with `live_` before it.
    """

    rows: Fraction | None = None
    max_lag: NotNegative | None = None
    compare: bool = False
    checks: dict[str, str] = {}


class RestoreSettings(_Section):
    """What is compared with the manifest before a savepoint is restored; the table `[restore]`.

    Attributes:
        verify: Read and hash large files too, not only those of at most a megabyte; what the object
            store copies by itself then passes through this process once.
    """

    verify: bool = False


class MergeSettings(_Section):
    """How `merge` proves that a query can be replayed; the table `[merge]`.

    Attributes:
        controls: How many entities that no late event touches are replayed too, and must come out
            as the live query has them.
        tolerance: Most by which two floating-point numbers of a control may differ, as a share;
            sums of them depend on the order of additions.
    """

    controls: NotNegative = 20
    tolerance: Fraction = 0.0


class QuerySettings(_Section):
    """One query: its application and what that is bound to.

    Attributes:
        app: `package.module:attribute` of the `App`.
        app_name: Name of that `App`, where it is not that of the query: of a fork, for example.
        checkpoints: Parent directory; generation N of a query is in `<checkpoints>/<query>/N`.
        outputs: Table URI of each output.
        app_ids: `txnAppId` of an output that the query writes under an id of its own.
        own_rows: SQL predicate of an output that others write too, which is true for the query's
            rows alone, such as `source = 'shop'`: only they are taken back.
        topics: Topic of an input, where it differs from the application's own.
        tables: Table URI of each input that is a table.
        archives: Table URI of the archive of an input, which `merge` replays, and which is read
            where Kafka has forgotten; see `savepoints.jobs.archive`.
        every: When `run` takes periodic savepoints: an interval such as `10m`, or a cron
            expression such as `*/10 * * * *`.
        trigger: Pause between two batches; as soon as possible when not given.
        max_offsets_per_trigger: Most Kafka records in one batch.
        commit_group: Consumer group of Kafka for which the offsets of each savepoint of `run`,
            `attach` and `create` are committed, so that what watches the lag of groups sees the
            query; nothing else may use it.
        retention: For this query, instead of the one for all.
    """

    app: str
    app_name: str | None = None
    checkpoints: str
    outputs: dict[str, str] = {}
    app_ids: dict[str, str] = {}
    own_rows: dict[str, str] = {}
    topics: dict[str, str] = {}
    tables: dict[str, str] = {}
    archives: dict[str, str] = {}
    every: Every | None = None
    trigger: Duration | None = None
    max_offsets_per_trigger: int | None = None
    commit_group: str | None = None
    retention: RetentionSettings | None = None


class Settings(BaseSettings):
    """All settings.

    Attributes:
        store: URI of the store.
        jars: Directory with the jars of Delta, Kafka and S3A for Spark; not given when the cluster
            has them or `spark.jars.packages` names them.
        metrics_file: Where metrics are written after each periodic savepoint, for the textfile
            collector of Prometheus' node exporter.
        kafka: Where Kafka is.
        spark: How a session is made.
        periodic: What follows a periodic savepoint.
        retention: Which savepoints are kept.
        hooks: Who is told of pauses, savepoints and failures.
        compare: Metrics and thresholds of `compare`.
        promote: What a fork has to pass before it takes over.
        restore: What is compared with the manifest before a restore.
        merge: How merges are verified.
        queries: Each query by its name.

    Examples:
        >>> settings = savepoints.Settings(
        ...     queries={
        ...         "totals": {
        ...             "app": "totals:app",  # module:attribute of an App
        ...             "checkpoints": "s3://lake/checkpoints",  # …/totals/1, …/totals/2
        ...             "outputs": {"totals": "s3://lake/tables/totals"},
        ...         }
        ...     }
        ... )
        >>> settings.queries["totals"].app
        'totals:app'
    """

    model_config = SettingsConfigDict(
        env_prefix=config_files.PREFIX,
        env_nested_delimiter=config_files.SEPARATOR,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )
    _files: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    _file: ClassVar[str] = FILE

    store: str = ""
    jars: Path | None = None
    metrics_file: Path | None = None
    kafka: KafkaSettings = KafkaSettings()
    spark: SparkSettings = SparkSettings()
    periodic: PeriodicSettings = PeriodicSettings()
    retention: RetentionSettings = RetentionSettings()
    hooks: HookSettings = HookSettings()
    compare: CompareSettings = CompareSettings()
    promote: PromoteSettings = PromoteSettings()
    restore: RestoreSettings = RestoreSettings()
    merge: MergeSettings = MergeSettings()
    queries: dict[str, QuerySettings] = {}

    @classmethod
    def load(cls, file: Path | str | None = None, *, profile: str | None = None) -> Settings:
        """Read the settings as the command line does: files, then `SAVEPOINTS_*` variables.

        Args:
            file: The settings file; `savepoints.toml` and `pyproject.toml` in the working directory
                when not given.
            profile: Name of a `[profiles.NAME]` table whose values win over the rest of the files.

        Raises:
            UsageError: If the file does not exist, is not TOML, or has a key that does not exist;
                or if a `SAVEPOINTS_*` variable is not a setting.
        """
        return load(file=None if file is None else Path(file), profile=profile)

    def bound(self, query: str, consequence: str) -> QuerySettings:
        """Return the settings of a query.

        Args:
            query: Name of the query.
            consequence: What follows if it has none, for the error.

        Raises:
            UsageError: If it has none.
        """
        found = self.queries.get(query)
        if found is None:
            raise UsageError(
                f"the query {query} is not in the settings, so {consequence}",
                hint=f"add a table [queries.{query}] with app, checkpoints and outputs to "
                f"{self._file}"
                + (f"; it already has: {', '.join(self.queries)}" if self.queries else ""),
                query=query,
            )
        return found

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take flags first, then the environment, then the files."""
        del dotenv_settings, file_secret_settings
        files = (InitSettingsSource(settings_cls, dict(content)) for content in cls._files)
        return (init_settings, env_settings, *files)


def load(
    *, file: Path | None = None, profile: str | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Read the settings.

    Args:
        file: The settings file; `savepoints.toml` and `pyproject.toml` in the working directory
            when not given.
        profile: Name of a `[profiles.NAME]` table whose values win over the rest of the files.
        flags: Values from the command line, which win over everything; None values are left out.

    Raises:
        UsageError: If the file does not exist, is not TOML, or has a key that does not exist; or
            if a `SAVEPOINTS_*` variable is not a setting.
    """
    return combine(config_files.of_files(file, profile), flags, file)


def combine(
    files: Sequence[Layer], flags: Mapping[str, Any] | None = None, file: Path | None = None
) -> Settings:
    """Put the layers of the files below the environment and the flags. See `load`."""
    config_files.refuse_unknown_variables(Settings.model_fields)
    # A class method returns the sources, so each load needs a class of its own.
    bound = type(
        "Settings",
        (Settings,),
        {
            "_files": tuple(one.content for one in files),
            "_file": str(file or os.environ.get(config_files.FILE_VARIABLE) or FILE),
            "__doc__": Settings.__doc__,
        },
    )
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    try:
        settings: Settings = bound(**given)
    except ValidationError as error:
        raise _explained(error, files) from None
    except ValueError as error:  # Raised by pydantic-settings for a variable that is not JSON.
        raise UsageError(secrets.mask(str(error)), hint="correct the variable") from None
    return settings


def _explained(error: ValidationError, files: Sequence[Layer]) -> UsageError:
    first = error.errors()[0]
    path = tuple(str(part) for part in first["loc"])
    key = ".".join(path)
    origin = config_files.origin(path, [environment(), *files]) or FILE
    if first["type"] != "extra_forbidden":
        problem = first["msg"].removeprefix("Value error, ")
        return UsageError(
            f"setting {key}: {problem}", hint=f"correct the setting in {origin}", setting=key
        )
    close = difflib.get_close_matches(path[-1], _known_keys(path[:-1]), n=1)
    return UsageError(
        f"there is no setting {key}",
        hint=f"did you mean {close[0]}?" if close else f"remove the key from {origin}",
        setting=key,
    )


def environment() -> Layer:
    """Return the settings from the environment."""
    return Layer(config_files.ENVIRONMENT, EnvSettingsSource(Settings)())


def _known_keys(parents: tuple[str, ...]) -> list[str]:
    """Return the keys of the table at a path."""
    table: Any = Settings
    for name in parents:
        if get_origin(table) is dict:
            table = get_args(table)[1]
        else:
            table = table.model_fields[name].annotation
        if isinstance(table, types.UnionType):
            table = get_args(table)[0]
    return list(table.model_fields)
