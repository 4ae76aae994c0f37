"""Settings: flag > `SAVEPOINTS_*` > profile > project's file > `pyproject.toml` > user's > default.

Nested settings are joined by `__` in the environment: `SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS`. Spark
and AWS keep their own names: Spark's go under `[spark.conf]`, AWS' are read from AWS' variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from savepoints.config import files as config_files
from savepoints.config import secrets
from savepoints.config.files import FILE, Layer
from savepoints.config.values import (
    ClientOptionsField,
    CommandLine,
    Count,
    Duration,
    Every,
    ExportTime,
    Fraction,
    HookEvent,
    LocalPath,
    MergeTime,
    NotNegative,
    Place,
    Positive,
    Ratio,
    TableUri,
    Url,
)
from savepoints.config.wrong_settings import explained
from savepoints.errors import UsageError


class _Section(BaseModel):
    # pydantic's errors leave out values: a wrong one may be a password.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class KafkaSettings(_Section):
    """Kafka's brokers and client options.

    Attributes:
        bootstrap_servers: `host:port`; separate several with commas.
        options: Client options such as `"security.protocol"`, for Spark and for the commands' own
            client. Names may be those of librdkafka or of Kafka's Java client. Secrets are never
            shown.
    """

    bootstrap_servers: str = ""
    options: ClientOptionsField = secrets.ClientOptions()

    @property
    def reads_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out; Kafka's default is no."""
        return self.options.get("isolation.level") == "read_committed"


class SparkSettings(_Section):
    """How commands start a Spark session.

    Attributes:
        master: Spark's master URL.
        conf: Spark configuration, by Spark's own keys.
    """

    master: str = "local[*]"
    conf: ClientOptionsField = secrets.ClientOptions()

    @property
    def retained_batches(self) -> int:
        """Of how many batches Spark keeps the logs and the state."""
        return int(self.conf.get("spark.sql.streaming.minBatchesToRetain", "100"))


class RetentionSettings(_Section):
    """Which savepoints `expire` keeps; all others are removed. A count of -1 keeps all.

    Attributes:
        keep_last: Keep this many of the newest.
        keep_hourly: Keep the newest of each hour, for this many hours.
        keep_daily: Keep the newest of each day, for this many days.
        keep_weekly: Keep the newest of each ISO week, for this many weeks.
        keep_monthly: Keep the newest of each month, for this many months.
        keep_within: Keep all that were taken within this time before the newest.
        keep_tags: Only these tags protect a savepoint; by default every tag does.
        after_savepoint: Run `expire` after each periodic savepoint.
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
    """What `run` and `attach` do after a periodic savepoint.

    Attributes:
        export: When the state rows of savepoints that have both forms are written, while the query
            runs: `newest` skips savepoints for which a newer one exists by then, `each` skips none,
            a schedule (`daily`, `6h`, `0 3 * * *`) writes those of the newest savepoint at these
            times, and `never` leaves it to `savepoints export`.
    """

    export: ExportTime = "newest"


class HookSettings(_Section):
    """Where notifications about a query are sent, each as one JSON document.

    Attributes:
        command: Program and arguments to run, without a shell; the document is its stdin.
        url: `http://` or `https://` URL that the document is posted to.
        on: Which notifications to send: a run was `paused` or `resumed`, a `savepoint` was taken,
            or a run or savepoint `failed`.
        timeout: How long to wait for the command or the URL before giving up.
    """

    # Both may have a token in them.
    command: CommandLine | None = Field(default=None, repr=False)
    url: Url | None = Field(default=None, repr=False)
    on: tuple[HookEvent, ...] = get_args(HookEvent)
    timeout: Duration = timedelta(seconds=10)


class ThresholdSettings(_Section):
    """How much two queries may differ for `compare` to report `within`. Fractions are from 0 to 1.

    Attributes:
        rows: Fraction of an output's rows that may be missing, extra or changed.
        columns: Number of an output's columns that may be added, dropped or changed in type.
        state_rows: Fraction of the state rows that may differ.
        metrics: Allowed relative difference of each metric, by name; 0 by default.
        seconds: How many times as long as the first query another one may run; unlimited by
            default.
    """

    rows: Fraction = 0.0
    columns: NotNegative = 0
    state_rows: Fraction = 0.0
    metrics: dict[str, Ratio] = {}
    seconds: Ratio | None = None


class CompareSettings(_Section):
    """Metrics that `compare` computes, and differences that it tolerates.

    Attributes:
        metrics: SQL that returns one number, by name of the metric; each output is available as a
            view under its own name.
        thresholds: How much two queries may differ.
    """

    metrics: dict[str, str] = {}
    thresholds: ThresholdSettings = ThresholdSettings()


class PromoteSettings(_Section):
    """Checks that a fork must pass before `promote` lets it take over.

    Attributes:
        rows: Fraction by which an output's row count may differ from that of the live output; by
            default any number of rows passes except zero.
        max_lag: How many records may be left in Kafka that neither query has read; unlimited by
            default.
        compare: Require that `compare` finds the two the same, or within its thresholds.
        checks: SQL that must return true, by name of the check. Outputs of the fork are available
            as views under their own names, those of the live query with the prefix `live_`.
    """

    rows: Fraction | None = None
    max_lag: NotNegative | None = None
    compare: bool = False
    checks: dict[str, str] = {}


class RestoreSettings(_Section):
    """What is verified before a savepoint is restored.

    Attributes:
        verify: Also read and hash files larger than one megabyte. Files that the object store would
            copy by itself are then read by this process once.
    """

    verify: bool = False


class MergeSettings(_Section):
    """How `merge` proves that a query can be replayed exactly, and when `run` merges by itself.

    Attributes:
        controls: Number of entities without late events that are replayed as well; their results
            must equal those of the live query.
        tolerance: Relative difference allowed between floating-point numbers of a control entity;
            floating-point sums depend on the order of addition.
        dropped: When a `run` without an end merges what Spark dropped as late, as `merge --dropped`
            does: a schedule (`daily`, `6h`, `0 3 * * *`), or `never`. Queries without an archive
            are left out.
    """

    controls: NotNegative = 20
    tolerance: Fraction = 0.0
    dropped: MergeTime = "never"


class QuerySettings(_Section):
    """One query: its application, and the tables, topics and checkpoints that it uses.

    Attributes:
        app: `package.module:attribute` of the `App`.
        app_name: Name of the `App` if it differs from the query's, for example for a fork.
        checkpoints: Parent directory of the checkpoints; generation N of a query is in
            `<checkpoints>/<query>/N`.
        outputs: Table URI of each output; the name of a table in a catalog is refused.
        app_ids: The `txnAppId` of each output that the query writes with an explicit one.
        own_rows: For an output that others also write: an SQL predicate that is true only for this
            query's rows, such as `source = 'shop'`. Only those rows are rewound.
        output_topics: Kafka topics that the query writes, and nobody else; the queries that read
            them belong to its pipeline.
        topics: Topic of each input, if it differs from the one in the application.
        tables: Table URI of each input that is a table.
        archives: Table URI of the archive of each input. `merge` replays from it, and it supplies
            records that Kafka no longer has; see `savepoints.jobs.archive`.
        every: When `run` takes periodic savepoints: an interval such as `10m`, or a cron
            expression such as `*/10 * * * *`.
        groups: When `run` takes a group of native savepoints of the whole pipeline that the query
            belongs to, as `pipeline create` does: an interval or a cron expression. Set it for one
            query of a pipeline.
        trigger: Interval between batches; by default each starts as soon as the last one ends.
        max_offsets_per_trigger: Maximum number of Kafka records in one batch.
        commit_group: Kafka consumer group for which `run`, `attach` and `create` commit the offsets
            of each savepoint, so that tools that monitor consumer lag see the query. Nothing else
            may use the group.
        retention: Retention rules of this query, instead of the general ones.
    """

    app: str
    app_name: str | None = None
    checkpoints: Place
    outputs: dict[str, TableUri] = {}
    app_ids: dict[str, str] = {}
    own_rows: dict[str, str] = {}
    output_topics: tuple[str, ...] = ()
    topics: dict[str, str] = {}
    tables: dict[str, TableUri] = {}
    archives: dict[str, TableUri] = {}
    every: Every | None = None
    groups: Every | None = None
    trigger: Duration | None = None
    max_offsets_per_trigger: Positive | None = None
    commit_group: str | None = None
    retention: RetentionSettings | None = None


class Settings(BaseSettings):
    """All settings: from `savepoints.toml`, from `SAVEPOINTS_*`, or given as arguments.

    `Settings.load()` reads the file in the current directory and the environment:

    ```toml
    store = "s3://bucket/savepoints"

    [kafka]
    bootstrap_servers = "broker:9092"

    [queries.totals]
    app = "totals:app"                      # module:attribute of an App
    checkpoints = "s3://lake/checkpoints"   # …/totals/1, …/totals/2

    [queries.totals.outputs]
    totals = "s3://lake/tables/totals"
    ```

    Attributes:
        store: URI of the store.
        jars: Directory with the Delta, Kafka and S3A jars for Spark; not needed if the cluster has
            them or `spark.jars.packages` lists them.
        metrics_file: File that metrics are written to after each periodic savepoint, for the
            textfile collector of Prometheus' node exporter.
        kafka: Kafka's brokers and client options.
        spark: How commands start a Spark session.
        periodic: What happens after a periodic savepoint.
        retention: Which savepoints `expire` keeps.
        hooks: Where notifications of pauses, savepoints and failures are sent.
        compare: Metrics and thresholds of `compare`.
        promote: Checks that a fork must pass before it takes over.
        restore: What is verified before a restore.
        merge: How merges are verified.
        queries: The queries, by name.

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
    jars: LocalPath | None = None
    metrics_file: LocalPath | None = None
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
                by default.
            profile: Name of a `[profiles.NAME]` table whose values win over the rest of the files;
                by default what `SAVEPOINTS_PROFILE` says.

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
                hint=f"add a section [queries.{query}] with app, checkpoints and outputs to "
                f"{self._file}"
                + (f"; queries in the settings: {', '.join(self.queries)}" if self.queries else ""),
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
    """Read the settings; see `Settings.load`.

    Args:
        flags: Values from the command line, which win over everything; None values are left out.
    """
    return combine(config_files.of_files(file, profile), flags, file)


def combine(
    files: Sequence[Layer], flags: Mapping[str, Any] | None = None, file: Path | None = None
) -> Settings:
    """Put the layers of the files below the environment and the flags. See `load`."""
    config_files.refuse_unknown_variables(Settings.model_fields)
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    try:
        settings = _reading(files, file)(**given)
    except ValidationError as error:
        raise explained(error, [environment(), *files], Settings) from None
    except ValueError as error:  # Raised by pydantic-settings for a variable that is not JSON.
        raise config_files.not_json(error) from None
    for one in files:
        for profile in one.unchosen:
            _refuse_unknown_keys(profile)
    return settings


def _reading(files: Sequence[Layer], file: Path | None = None) -> type[Settings]:
    """Return the settings as a class that reads these: a class method returns the sources."""
    return type(
        "Settings",
        (Settings,),
        {
            "_files": tuple(one.content for one in files),
            "_file": str(file or os.environ.get(config_files.FILE_VARIABLE) or FILE),
            "__doc__": Settings.__doc__,
        },
    )


def _refuse_unknown_keys(profile: Layer) -> None:
    """Refuse a mistyped key now, not in the night in which somebody chooses the profile.

    What else is wrong or missing there may be completed by the environment of its machine.
    """
    try:
        _reading([profile])()
    except ValidationError as error:
        for at, one in enumerate(error.errors()):
            if one["type"] == "extra_forbidden":
                raise explained(error, [environment(), profile], Settings, at) from None


def environment() -> Layer:
    """Return the settings from the environment."""
    return Layer(config_files.ENVIRONMENT, EnvSettingsSource(Settings)())
