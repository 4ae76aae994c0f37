"""Settings: flag > `SAVEPOINTS_*` > profile > `savepoints.toml` > default.

Nested settings are joined by `__` in the environment: `SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS`. Spark
and AWS keep their own names: Spark's go under `[spark.conf]`, AWS' are read from AWS' variables.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from savepoints.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "savepoints.toml"

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIMPLE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)
_LONGEST_SECONDS = timedelta(days=36500).total_seconds()


def parse_duration(text: str) -> timedelta:
    """Read a duration such as `90s`, `15m`, `36h`, `7d` or `PT15M`.

    Raises:
        UsageError: If it is none, is zero, or is longer than a hundred years.
    """
    if match := _SIMPLE.fullmatch(text):
        seconds = float(match.group(1)) * _UNITS[match.group(2)]
    elif (match := _ISO.fullmatch(text)) and any(match.groups()):
        days, hours, minutes, rest = (float(part or 0) for part in match.groups())
        seconds = days * 86400 + hours * 3600 + minutes * 60 + rest
    else:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise UsageError(
            f"{text!r} is not a duration", hint="write it like 90s, 15m, 36h, 7d or PT15M"
        )
    return timedelta(seconds=seconds)


def _duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


Duration = Annotated[timedelta, BeforeValidator(_duration)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(_Section):
    """Where Kafka is, and options for its clients under their own names."""

    bootstrap_servers: str = ""
    options: dict[str, str] = {}


class SparkSettings(_Section):
    """How a session is made when there is none yet."""

    master: str = "local[*]"
    conf: dict[str, str] = {}


class QuerySettings(_Section):
    """One query: its application and what that is bound to.

    Attributes:
        app: `package.module:attribute` of the `App`.
        checkpoints: Directory below which its generations get theirs.
        outputs: Table URI of each output.
        topics: Topic of an input, where it differs from the application's own.
        every: Interval of periodic savepoints in `run`.
        trigger: Pause between two batches; as soon as possible when not given.
        max_offsets_per_trigger: Most Kafka records in one batch.
    """

    app: str
    checkpoints: str
    outputs: dict[str, str] = {}
    topics: dict[str, str] = {}
    every: Duration | None = None
    trigger: Duration | None = None
    max_offsets_per_trigger: int | None = None


class Settings(BaseSettings):
    """All settings.

    Attributes:
        store: URI of the store.
        jars: Directory with the jars of Delta, Kafka and S3A for Spark; None when the cluster has
            them or `spark.jars.packages` names them.
    """

    model_config = SettingsConfigDict(
        env_prefix="SAVEPOINTS_", env_nested_delimiter="__", extra="forbid", frozen=True
    )
    _files: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    store: str = ""
    jars: Path | None = None
    kafka: KafkaSettings = KafkaSettings()
    spark: SparkSettings = SparkSettings()
    queries: dict[str, QuerySettings] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put flags before the environment before the files."""
        del dotenv_settings, file_secret_settings
        files = (InitSettingsSource(settings_cls, dict(content)) for content in cls._files)
        return (init_settings, env_settings, *files)


def load(
    *, file: Path | None = None, profile: str | None = None, flags: Mapping[str, Any] | None = None
) -> Settings:
    """Read the settings.

    Args:
        file: The settings file; `savepoints.toml` in the working directory when not given.
        profile: Name of a `[profiles.NAME]` table whose values win over the rest of the file.
        flags: Values from the command line, which win over everything; None values are left out.

    Raises:
        UsageError: If the file does not exist, is not TOML, or has a key that does not exist.
    """
    content = _read(file)
    profiles = content.pop("profiles", {})
    if profile is not None and profile not in profiles:
        raise UsageError(
            f"there is no profile {profile!r}",
            hint=f"the file has: {', '.join(sorted(profiles)) or 'none'}",
        )
    chosen = profiles.get(profile, {}) if profile else {}
    # The sources are asked for by a class method, so each load gets a class of its own.
    bound = type(
        "Settings", (Settings,), {"_files": (chosen, content), "__doc__": Settings.__doc__}
    )
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    try:
        settings: Settings = bound(**given)
    except ValidationError as error:
        raise _explained(error) from None
    return settings


def _read(file: Path | None) -> dict[str, Any]:
    path = file or Path(os.environ.get("SAVEPOINTS_CONFIG", FILE))
    if not path.exists():
        if file is None and "SAVEPOINTS_CONFIG" not in os.environ:
            return {}
        raise UsageError(f"the settings file {path} does not exist", hint="check --config")
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}", hint="correct the line it names") from None


def _explained(error: ValidationError) -> UsageError:
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return UsageError(f"setting {path}: {first['msg']}", hint=f"correct it in {FILE}")
    close = difflib.get_close_matches(str(first["loc"][-1]), _known_keys(first["loc"][:-1]), n=1)
    return UsageError(
        f"there is no setting {path}",
        hint=f"did you mean {close[0]}?" if close else "see the settings in docs, or remove it",
    )


def _known_keys(parents: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = Settings
    sections: dict[str, type[BaseModel]] = {
        "kafka": KafkaSettings,
        "spark": SparkSettings,
        "queries": QuerySettings,
    }
    if parents:
        model = sections.get(str(parents[0]), Settings)
    return list(model.model_fields)
